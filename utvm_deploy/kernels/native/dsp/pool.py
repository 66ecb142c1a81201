"""AVERAGE_POOL_2D and MAX_POOL_2D for cores with the DSP extension: four channels in a word."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import pool_code as code

_WORD = 4


@dataclass(frozen=True)
class DspPool:
    """Shape parameters of a pooling layer."""

    window: Window
    channels: int
    is_average: bool

    family: ClassVar[str] = "dsp"
    why: ClassVar[str] = "DSP assembly, four channels in a word"

    @property
    def name(self) -> str:
        kind = "average" if self.is_average else "max"
        return f"{kind}_pool_{self.window.label}_{self.channels}_{self.family}"

    @property
    def driver(self) -> str:
        """The C function for an image."""
        return code.driver_of(self.is_average)

    def text(self, core: str) -> str:
        """The C text of it."""
        return code.pool_text(core, self.is_average)

    @property
    def geometry(self) -> Array:
        """As ``utvm_pool`` reads it."""
        w = self.window
        values = (w.height, w.width, self.channels, w.output_height, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, w.top, w.left], dtype=np.int32)

    @property
    def lag(self) -> Lag | None:
        return lag_by_pixels(self.window, self.channels, self.channels, 1, mixed=True)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._image, self._geometry, "low", "high", self._output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return ()

    def texts(self, core: str) -> tuple[str, ...]:
        return (self.text(core),)

    def drive(self, c: Driver) -> None:
        image, output = self._image, self._output
        with c.loop("batch", self.window.batch) as n:
            places = image.at(n * image.stride(0)), output.at(n * output.stride(0))
            c.call(self.driver, *places, self._geometry.at(), "low", "high")

    @property
    def _image(self) -> Operand:
        w = self.window
        return Operand("image", (w.batch, w.height, w.width, self.channels), "int8")

    @property
    def _geometry(self) -> Operand:
        return Operand("geometry", (self.geometry.size,), "int32")

    @property
    def _output(self) -> Operand:
        w = self.window
        shape = w.batch, w.output_height, w.output_width, self.channels
        return Operand("output", shape, "int8")


def dsp_pool_call(
    call: KernelCall, window: Window, channels: int, is_average: bool
) -> KernelCall | str:
    """The call instead of the generic one."""
    if channels < _WORD:
        return "less than a word of channels"
    return pool_call(call, DspPool(window, channels, is_average))


def pool_call(call: KernelCall, kernel: DspPool) -> KernelCall | str:
    """The call of ``kernel``, unless sums of its windows need more than halfwords."""
    positions = math.prod(kernel.window.kernel)
    if kernel.is_average and positions > code.MOST_POSITIONS:
        return f"a window of {positions} positions"
    image, *others = call.arguments
    geometry = ConstantArgument("geometry", kernel.geometry)
    return replace(call, kernel=kernel, arguments=(image, geometry, *others))
