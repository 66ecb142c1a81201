"""DEPTHWISE_CONV_2D for cores with Helium: the rows of ``depthwise_code.py``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.mve import depthwise_code as code
from utvm_deploy.kernels.native.mve.code import has_left_shift
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call
from utvm_deploy.kernels.portable.depthwise import DepthwiseConv2D


@dataclass(frozen=True)
class MveRowProduct:
    """The micro-kernel of ``depthwise_code.py``."""

    taps: int
    is_paired: bool  # two taps at a time
    has_left: bool  # a channel's scale needs a left shift

    @property
    def label(self) -> str:
        return "mve" + ("" if self.is_paired else "_single") + ("_left" if self.has_left else "")

    @property
    def group(self) -> int:
        return code.GROUP

    @property
    def function(self) -> str:
        return code.name_of(self.has_left)

    @property
    def why(self) -> str:
        return f"Helium assembly, 2 pixels x {code.GROUP} channels in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        return (code.depthwise_text(self.has_left),)

    def tables(self, taps: int, channels: int) -> tuple[Operand, ...]:
        groups = -(-channels // code.GROUP)
        return (
            Operand("weights", (groups * taps * code.GROUP,), "int8"),
            Operand("scaling", (groups * code.scaling_words(self.has_left),), "int32"),
            Operand("offsets", (taps,), "int32"),
            Operand("limits", (3,), "int32"),
        )

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        pairs = self.taps // 2 if self.is_paired else 0
        return steps.window, count, channels, self.taps, pairs


def mve_depthwise_call(call: KernelCall, tables: ConvolutionTables) -> KernelCall:
    """The call instead of the generic one."""
    generic, channels = call.kernel, tables.weights.shape[0]
    assert isinstance(generic, DepthwiseConv2D)
    flat = tables.weights.reshape(channels, -1).T
    product = MveRowProduct(flat.shape[0], code.fits_pairs(flat), has_left_shift(tables.shift))
    kernel = RowDepthwise(tables.window, channels, product, generic.depth_multiplier)
    rows = tables.bias, tables.multiplier, tables.shift
    steps = tables.window.kernel, kernel.steps.row, kernel.steps.column
    limits = np.array([tables.zero_point, *tables.limits], dtype=np.int32)
    packed = (
        ConstantArgument("weights", code.pack_weights(flat)),
        ConstantArgument("scaling", code.pack_scaling(*rows, has_left=product.has_left)),
        ConstantArgument("offsets", code.pack_offsets(*steps)),
        ConstantArgument("limits", limits),
    )
    return row_depthwise_call(call, kernel, packed, tables.border)
