"""AVERAGE_POOL_2D and MAX_POOL_2D: the skeleton that the pixel routines of the families plug into.

``c/utvm_pool.h`` goes over the pixels of the output. It cuts each window to the positions inside
the image, and calls the routine of the family, which computes all channels of one pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.extents import type_label
from utvm_deploy.kernels.contract.lag import Lag, lag_by_pixels
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.portable.integers.pool import Pool2D

#: Positions of an averaged window at most: the sum of 255 int8 values fits 16 bits.
MOST_POSITIONS = 255


def pixel_parameters(dtype: str) -> str:
    """The C parameters of a pixel routine.

    Rows and columns are those inside the image, ``row_bytes`` is the distance of two rows in
    elements, and the routine limits its results to ``low`` and ``high``.
    """
    c_type = element_type(dtype).c_type
    return f"""
    const {c_type} *from, {c_type} *to, int32_t rows, int32_t columns, int32_t row_bytes,
    int32_t channels, int32_t low, int32_t high
    """


class PixelRoutine(Protocol):
    """The assembly of a family."""

    def c_function(self, name: str, portable: str, condition: str) -> str:
        """The static C function; ``portable`` is its body where there is no assembly."""


@dataclass(frozen=True)
class NativePool:
    """Shape parameters of a pooling layer; a family derives its own class."""

    window: Window
    channels: int
    is_average: bool
    dtype: str = "int8"

    family: ClassVar[str]
    #: Where the assembly of the pixel routine can be used.
    condition: ClassVar[str]
    #: The start of the C functions' names, before the type.
    prefix: ClassVar[str]
    least_channels: ClassVar[int] = 1

    @property
    def why(self) -> str:
        raise NotImplementedError

    def pixel(self, core: str) -> PixelRoutine:
        """The routine that computes all channels of one output pixel."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        size = f"{self.window.label}_{self.channels}{type_label(self.dtype)}"
        return f"{self._kind}_pool_{size}_{self.family}"

    @property
    def geometry(self) -> Array:
        """As ``utvm_pool`` reads it."""
        w = self.window
        values = (w.height, w.width, self.channels, w.output_height, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, w.top, w.left], dtype=np.int32)

    @property
    def lag(self) -> Lag | None:
        element_bytes = element_type(self.dtype).unit_bytes
        pixel_bytes = self.channels * element_bytes
        lag = lag_by_pixels(self.window, pixel_bytes, pixel_bytes, 1, mixed=True)
        return lag and replace(lag, unit_bytes=element_bytes)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        image, geometry, output = self._operands
        return image, geometry, "low", "high", output

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return ()

    def texts(self, core: str) -> tuple[str, ...]:
        pixel, ctype = f"{self._prefix}_{self._kind}_pixel", element_type(self.dtype).c_type
        portable = replaced(shared_text(f"utvm_{self._kind}_pixel"), ("int8_t", ctype, 1))
        if not self.is_average:
            portable = replaced(portable, ("LOWEST", str(element_type(self.dtype).limits[0]), 1))
        names = ("UTVM_PIXEL", pixel, 1), ("UTVM_POOL", self._function, 1)
        return (
            self.pixel(core).c_function(pixel, portable, self.condition),
            replaced(shared_text("utvm_pool"), ("int8_t", ctype, 2), *names),
        )

    def drive(self, c: Driver) -> None:
        image, geometry, output = self._operands
        with c.loop("batch", self.window.batch) as n:
            places = image.at(n), output.at(n)
            c.call(self._function, *places, geometry.at(), "low", "high")

    @property
    def _kind(self) -> str:
        return "average" if self.is_average else "max"

    @property
    def _prefix(self) -> str:
        return f"{self.prefix}{type_label(self.dtype)}"

    @property
    def _function(self) -> str:
        """The C function for an image."""
        return f"{self._prefix}_pool_{self._kind}"

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand]:
        return (
            Operand("image", self.window.input_shape(self.channels), self.dtype),
            Operand("geometry", (self.geometry.size,), "int32"),
            Operand("output", self.window.output_shape(self.channels), self.dtype),
        )


def load_reciprocal(a: Assembler, count: str, reciprocal: str, temporary: str) -> None:
    """Compute the count of positions from r2 and r3, and 2**31 / count, rounded up."""
    a.mul(count, "r2", "r3")
    a.mov(temporary, 0x80000000)
    a.udiv(reciprocal, temporary, count)
    a.mls(temporary, reciprocal, count, temporary)
    a.cmp(temporary, 0)
    with a.when("ne"):
        a.add(reciprocal, reciprocal, 1)


def pool_call(family: type[NativePool], call: KernelCall) -> KernelCall | str:
    """The call of the family's kernel instead of the portable one, or why there is none."""
    portable = call.kernel
    if not isinstance(portable, Pool2D):
        return "it is not a pool over windows"
    if portable.channels < family.least_channels:
        return f"fewer than {family.least_channels} channels"
    positions = math.prod(portable.window.kernel)
    if portable.is_average and positions > MOST_POSITIONS:
        return f"a window of {positions} positions"
    shape = portable.window, portable.channels, portable.is_average
    kernel = family(*shape, portable.dtype)
    image, *others = call.arguments
    geometry = ConstantArgument("geometry", kernel.geometry)
    return replace(call, kernel=kernel, arguments=(image, geometry, *others))
