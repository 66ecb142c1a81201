"""CONV_2D in groups for cores with Helium: of each group the product of ``gemm.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D, gathered
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.conv2d import MveProduct

#: Pixels that are read in place, multiplied at a time.
_IN_PLACE = 24


@dataclass(frozen=True)
class MveGroupedConv(RoutineKernel):
    """The convolution of one group, and how many there are."""

    conv: GatheredConv2D
    groups: int

    @property
    def name(self) -> str:
        channels = f"{self.conv.input_channels}x{self.conv.output_channels}"
        label = f"{self.conv.window.label}_{channels}_g{self.groups}"
        return f"conv2d_{label}_{self.conv.product.label}"

    @property
    def geometry(self) -> ConstantArgument:
        """As ``utvm_mve_grouped.h`` reads it: the image has the channels of all groups."""
        table = self.conv.geometry
        table[2] *= self.groups
        table[12] = self.conv.input_channels
        return ConstantArgument("geometry", table)

    @property
    def why(self) -> str:
        return f"{self.conv.product.why}, group by group"

    @property
    def routine(self) -> RoutineCall:
        conv, w = self.conv, self.conv.window
        weights, scaling, limits = conv.tables
        pixels = w.output_height * w.output_width
        step = conv.pixels or _IN_PLACE
        image = w.batch * w.height * w.width * conv.input_channels * self.groups
        output = w.batch * pixels * conv.output_channels * self.groups
        return RoutineCall(
            f"utvm_mve_grouped_by_{conv.product.function}",
            (
                Operand("input", (image,), "int8"),
                Operand("geometry", (conv.geometry.size,), "int32"),
                replace(weights, shape=(weights.elements * self.groups,)),
                replace(scaling, shape=(scaling.elements * self.groups,)),
                limits,
                "border",
                Operand("output", (output,), "int8"),
            ),
            (
                *(w.batch, pixels, step, self.groups, conv.output_channels),
                *(int(conv.is_gathered), weights.elements, scaling.elements),
            ),
            (
                Operand("windows", (conv.pixels * conv.depth or 1,), "int8"),
                Operand("tile", (step * conv.output_channels,), "int8"),
            ),
        )

    def texts(self, core: str) -> tuple[str, ...]:
        driver = family_text("mve", "utvm_mve_grouped")
        made = replaced(driver, ("PRODUCT", self.conv.product.function, 2))
        return shared_text("utvm_bytes"), *self.conv.product.texts(), made


def mve_grouped_call(call: KernelCall, tables: ConvolutionTables, groups: int) -> KernelCall:
    """The call instead of the generic one."""
    outputs, _, _, inputs = tables.weights.shape
    product = MveProduct(gemm.has_left_shift(tables.shift))
    conv = gathered(tables.window, (inputs, outputs // groups), product, None)
    kernel = MveGroupedConv(conv, groups)
    weights = tables.weights.reshape(groups, outputs // groups, -1)
    packed = [gemm.pack_weights(one) for one in weights]
    rows = (tables.bias, tables.multiplier, tables.shift)
    scaling = [
        gemm.pack_scaling(*one, has_left=product.has_left)
        for one in zip(*(row.reshape(groups, -1) for row in rows), strict=True)
    ]
    limits = np.array([tables.zero_point, *tables.limits], dtype=np.int32)
    return replace(
        call,
        kernel=kernel,
        arguments=(
            call.arguments[0],
            kernel.geometry,
            ConstantArgument("weights", np.concatenate(packed)),
            ConstantArgument("scaling", np.concatenate(scaling)),
            ConstantArgument("limits", limits),
            ScalarArgument("border", tables.border),
            call.arguments[-1],
        ),
    )
