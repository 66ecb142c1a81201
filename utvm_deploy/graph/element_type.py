"""The one table of element types: what a tensor's elements are in memory, in C and in numpy.

Values of a type of less than a byte are packed: several are in a storage unit, the first in its
lowest bits, as in a .tflite file. ``Tensor.data`` has them unpacked, of the type ``numpy``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import ModelError


@dataclass(frozen=True)
class ElementType:
    """A type of a tensor's elements."""

    name: str  # numpy's, where numpy has the type
    bits: int
    # Of a storage unit; empty where generated C has no such type.
    c_type: str
    # The type of unpacked values.
    numpy: str

    @cached_property
    def unit_bytes(self) -> int:
        """The size of a storage unit, which is its alignment in C, too."""
        return max(self.bits // 8, 1)

    @cached_property
    def in_unit(self) -> int:
        """Elements in a storage unit."""
        return 8 * self.unit_bytes // self.bits

    @property
    def is_float(self) -> bool:
        """Whether values are real or complex numbers."""
        return np.dtype(self.numpy).kind in "fc"

    @property
    def is_signed(self) -> bool:
        """Whether values may be below 0."""
        return np.dtype(self.numpy).kind in "ifc"

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest value; ValueError for a type that is not of integers."""
        if self.is_float:
            raise ValueError(f"{self.name} is not a type of integers")
        if self.name == "bool":
            return 0, 1
        most = (1 << (self.bits - self.is_signed)) - 1
        return -most - 1 if self.is_signed else 0, most

    def size_bytes(self, count: int) -> int:
        """The size of ``count`` elements; the last storage unit may be partly filled."""
        return -(-count // self.in_unit) * self.unit_bytes

    def packed(self, values: NDArray[np.generic]) -> bytes:
        """The little-endian bytes of values; the bits that are left over at the end are 0."""
        if self.in_unit == 1:
            return values.astype(np.dtype(self.numpy).newbyteorder("<")).tobytes()
        low, high = self.limits
        wide = values.astype(np.int64).reshape(-1)
        if ((wide < low) | (wide > high)).any():
            raise ValueError(f"values of {self.name} are from {low} to {high}")
        units = np.zeros((self.size_bytes(wide.size), self.in_unit), np.uint8)
        units.reshape(-1)[: wide.size] = wide & ((1 << self.bits) - 1)
        units <<= (self.bits * np.arange(self.in_unit)).astype(np.uint8)
        joined: NDArray[np.uint8] = np.bitwise_or.reduce(units, axis=1)
        return joined.tobytes()

    def unpacked(self, data: NDArray[np.uint8], shape: Sequence[int]) -> NDArray[np.generic]:
        """The values of a tensor; a view of ``data`` where they are not packed."""
        values: NDArray[np.generic]
        if self.in_unit == 1:
            values = data.view(np.dtype(self.numpy).newbyteorder("<"))
            return values.reshape(shape)
        # To the upper end of a byte and down again, which repeats the sign.
        up = (8 - self.bits * np.arange(1, self.in_unit + 1)).astype(np.uint8)
        raised = (data[:, None] << up).view(self.numpy)
        values = raised.reshape(-1)[: math.prod(shape)] >> (8 - self.bits)
        return values.reshape(shape)


def _numbers() -> Sequence[ElementType]:
    """What numpy has, too; generated C has booleans as bytes."""
    sizes = [(sign, bits) for bits in (8, 16, 32, 64) for sign in ("", "u")]
    names = {f"{sign}int{bits}": (bits, f"{sign}int{bits}_t") for sign, bits in sizes}
    found = {"bool": (8, "uint8_t"), **names, "float16": (16, ""), "float32": (32, "float")}
    found |= {"float64": (64, ""), "complex64": (64, ""), "complex128": (128, "")}
    return [ElementType(name, *facts, numpy=name) for name, facts in found.items()]


#: Name -> type, of all that the package knows.
ELEMENT_TYPES: Mapping[str, ElementType] = {
    one.name: one for one in (*_numbers(), ElementType("int4", 4, "uint8_t", numpy="int8"))
}


def element_type(name: str) -> ElementType:
    """The type of a name, ModelError if there is none."""
    if name not in ELEMENT_TYPES:
        raise ModelError(
            f"elements of type {name} have no known size; convert the model to one of "
            f"{', '.join(ELEMENT_TYPES)}"
        )
    return ELEMENT_TYPES[name]
