"""DEPTHWISE_CONV_2D by pixels on the DSP extension: the rows of ``depthwise_pixels_code.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import depthwise_pixels_code as code
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call
from utvm_deploy.kernels.native.scaling import Scaling


@dataclass(frozen=True)
class PixelsChoices(Choices):
    """Nothing beside the method."""

    method: ClassVar[str] = "pixels"


@dataclass(frozen=True)
class DspRowProduct:
    """The micro-kernel of ``depthwise_pixels_code.py``."""

    window: tuple[int, int]  # rows, columns
    core: str

    @property
    def label(self) -> str:
        return "dsp"

    @property
    def group(self) -> int:
        return code.GROUP

    @property
    def function(self) -> str:
        return code.name_of(self.window)

    @property
    def why(self) -> str:
        return f"DSP assembly, {code.GROUP} channels in registers along a row"

    def texts(self) -> tuple[str, ...]:
        return shared_text("utvm_scale"), code.depthwise_text(self.core, self.window)

    def tables(self, taps: int, channels: int) -> tuple[Operand, ...]:
        words = -(-channels // code.GROUP) * code.group_words(taps)
        return Operand("table", (words,), "int32"), Operand("limits", (2,), "int32")

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        return steps.row, steps.column, steps.window, count, channels, *self.window


def pixels_kernel(window: Window, channels: int, multiplier: int, core: str) -> RowDepthwise:
    """The kernel for so many channels of the input."""
    product = DspRowProduct(window.kernel, core)
    return RowDepthwise(window, channels * multiplier, product, multiplier)


def pixels_call(
    call: KernelCall,
    kernel: RowDepthwise,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [rows, columns, output channels]."""
    packed = (
        ConstantArgument("weights", code.pack_table(weights.reshape(-1, kernel.channels), scaling)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    )
    return row_depthwise_call(call, kernel, packed, border)
