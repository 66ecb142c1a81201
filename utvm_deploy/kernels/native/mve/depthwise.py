"""DEPTHWISE_CONV_2D for cores with Helium: the rows of ``depthwise_code.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.mve import depthwise_code as code
from utvm_deploy.kernels.native.mve.code import has_left_shift
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call


@dataclass(frozen=True)
class MveRowProduct:
    """The micro-kernel of ``depthwise_code.py``."""

    taps: int
    is_paired: bool  # two taps at a time
    has_left: bool  # a channel's scale needs a left shift
    group: ClassVar[int] = code.GROUP
    why: ClassVar[str] = f"Helium assembly, 2 pixels x {code.GROUP} channels in registers"

    @property
    def label(self) -> str:
        return "mve" + ("" if self.is_paired else "_single") + ("_left" if self.has_left else "")

    @property
    def function(self) -> str:
        return code.name_of(self.has_left)

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
    channels = tables.weights.shape[0]
    flat = tables.weights.reshape(channels, -1).T
    product = MveRowProduct(flat.shape[0], code.fits_pairs(flat), has_left_shift(tables.shift))
    kernel = RowDepthwise(tables.window, channels, product, channels // tables.inputs)
    rows = tables.bias, tables.multiplier, tables.shift
    steps = tables.window.kernel, kernel.steps.row, kernel.steps.column
    return row_depthwise_call(
        *(call, kernel, tables.border),
        weights=code.pack_weights(flat),
        scaling=code.pack_scaling(*rows, has_left=product.has_left),
        offsets=code.pack_offsets(*steps),
        limits=np.array([tables.zero_point, *tables.limits], dtype=np.int32),
    )
