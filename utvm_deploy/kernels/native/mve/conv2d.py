"""CONV_2D for cores with Helium: the product of ``gemm.py`` on gathered windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.native.gathered_gemm import gathered, gathered_conv2d_call
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.mve import gemm


@dataclass(frozen=True)
class WindowsChoices(Choices):
    """Pixels whose windows are gathered at a time."""

    pixels: int | None = None


@dataclass(frozen=True)
class MveProduct:
    """The micro-kernel of ``gemm.py``."""

    has_left: bool  # a channel's scale needs a left shift

    @property
    def label(self) -> str:
        return "mve_left" if self.has_left else "mve"

    @property
    def pixels(self) -> int:
        return gemm.PIXELS

    @property
    def depth_step(self) -> int:
        return 1

    @property
    def function(self) -> str:
        return gemm.name_of(self.has_left)

    @property
    def why(self) -> str:
        return f"Helium assembly, {gemm.PIXELS} pixels x 2 channels in registers"

    def texts(self) -> tuple[str, ...]:
        return (gemm.gemm_text(self.has_left),)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        quads = -(-channels // gemm.CHANNELS)
        return (
            Operand("weights", (quads * gemm.CHANNELS * gemm.padded_depth(depth),), "int8"),
            Operand("scaling", (quads * gemm.scaling_words(self.has_left),), "int32"),
            Operand("limits", (3,), "int32"),
        )


def mve_conv2d_call(
    call: KernelCall, tables: ConvolutionTables, choices: WindowsChoices
) -> KernelCall:
    """The call instead of the generic one."""
    outputs, _, _, inputs = tables.weights.shape
    product = MveProduct(gemm.has_left_shift(tables.shift))
    scaling = gemm.pack_scaling(tables.bias, tables.multiplier, tables.shift)
    limits = np.array([tables.zero_point, *tables.limits], dtype=np.int32)
    packed = (
        ConstantArgument("weights", gemm.pack_weights(tables.weights.reshape(outputs, -1))),
        ConstantArgument("scaling", scaling),
        ConstantArgument("limits", limits),
    )
    kernel = gathered(tables.window, (inputs, outputs), product, choices.pixels)
    return gathered_conv2d_call(call, kernel, packed, tables.border)
