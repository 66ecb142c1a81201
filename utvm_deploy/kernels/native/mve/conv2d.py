"""CONV_2D for cores with Helium: the product of ``gemm.py`` on gathered windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.native.gathered_gemm import gathered, gathered_conv2d_call
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.code import has_left_shift


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

    def texts(self, core: str) -> tuple[str, ...]:
        return (gemm.gemm_text(self.has_left),)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        words = gemm.scaling_words(channels, has_left=self.has_left)
        return (
            Operand("weights", (gemm.weights_bytes(channels, depth),), "int8"),
            Operand("scaling", (words,), "int32"),
            Operand("limits", (3,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        return gemm.pack_weights(weights), gemm.pack_scaling(*rows, has_left=self.has_left)


def mve_conv2d_call(
    call: KernelCall, tables: ConvolutionTables, choices: WindowsChoices, groups: int
) -> KernelCall:
    """The call instead of the generic one."""
    outputs, _, _, inputs = tables.weights.shape
    product = MveProduct(has_left_shift(tables.shift))
    kernel = gathered(tables.window, (inputs, outputs // groups), product, choices.pixels, groups)
    weights = tables.weights.reshape(outputs, -1)
    rows = np.array([tables.bias, tables.multiplier, tables.shift], dtype=np.int32)
    limits = tables.zero_point, *tables.limits
    return gathered_conv2d_call(call, kernel, weights, rows, limits, tables.border)
