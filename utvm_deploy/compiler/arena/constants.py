"""The constant tables of a model: one C struct in flash, equal tables stored once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.c_text import WEIGHTS_SECTION, c_type, float_literal
from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array

#: Every table begins at a multiple of this, so that kernels may load words.
TABLE_ALIGNMENT = 4

_VALUES_PER_LINE = 32


@dataclass
class ConstantTables:
    """Collects arrays; ``add`` gives the struct member that holds one."""

    _arrays: dict[str, Array] = field(default_factory=dict)
    _members: dict[tuple[str, bytes, int], str] = field(default_factory=dict)
    _alignments: dict[str, int] = field(default_factory=dict)
    _spans: dict[str, Span] = field(default_factory=dict)
    _end: int = 0

    def add(self, wanted_name: str, data: Array, alignment: int = 1) -> str:
        """The member for ``data``: a new one called ``wanted_name``, or the one that is equal."""
        # Equal tables have equal bytes, and text is made from the bits.
        flat = np.ascontiguousarray(data, data.dtype.newbyteorder("=")).reshape(-1)
        if flat.size == 0:
            raise CompileError(f"the constant {wanted_name} is empty; the model file is damaged")
        c_type(flat.dtype.name)
        key = (flat.dtype.name, flat.tobytes(), alignment)
        if key not in self._members:
            name, number = wanted_name, 2
            while name in self._arrays:
                name, number = f"{wanted_name}_{number}", number + 1
            self._members[key] = name
            self._arrays[name] = flat
            self._alignments[name] = max(_alignment(flat), alignment)
            self._spans[name] = Span(_aligned(self._end, self._alignments[name]), flat.nbytes)
            self._end = self._spans[name].offset + flat.nbytes
        return self._members[key]

    def span(self, member: str) -> Span:
        """Where in the struct one table lies."""
        return self._spans[member]

    @property
    def total_bytes(self) -> int:
        """Bytes of the struct, padding between tables included."""
        return _aligned(self._end, max(self._alignments.values(), default=1))

    @property
    def large_alignments(self) -> tuple[int, ...]:
        """Those that need more than the macro for all tables gives."""
        return tuple(sorted({*map(self._large_alignment, self._arrays)} - {0}))

    def _large_alignment(self, member: str) -> int:
        """The alignment of a table, if C does not give it for the elements; else 0."""
        wanted = self._alignments[member]
        return wanted if wanted > _alignment(self._arrays[member]) else 0

    def is_empty(self) -> bool:
        """Whether there is no table, and so no struct."""
        return not self._arrays

    def declaration(self, prefix: str) -> str:
        """The struct's type and the extern declaration of its only instance."""
        upper = prefix.upper()
        members = "".join(
            f"    {c_type(array.dtype.name)} {name}[{array.size}] "
            f"{aligned_macro(upper, self._large_alignment(name))};\n"
            for name, array in self._arrays.items()
        )
        return (
            f"struct {prefix}_weights {{\n{members}}};\n\n"
            f"{WEIGHTS_SECTION} extern const struct {prefix}_weights {prefix}_weights;\n"
        )

    def definition(self, prefix: str) -> str:
        """The instance with all values."""
        tables = ",\n".join(
            f"    // {name}\n    {{\n{_values(array)}\n    }}"
            for name, array in self._arrays.items()
        )
        return f"const struct {prefix}_weights {prefix}_weights = {{\n{tables}\n}};\n"


def aligned_macro(upper: str, alignment: int = 0) -> str:
    """The macro that aligns a table, to words or to more."""
    return f"{upper}_ALIGNED_{alignment}" if alignment else f"{upper}_ALIGNED"


def _alignment(array: Array) -> int:
    return max(TABLE_ALIGNMENT, element_type(array.dtype.name).unit_bytes)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _float_value(value: float) -> str:
    """A float32 in an initializer. C has no literals of infinities and NaNs, but GCC and Clang do.

    Masks of attention have infinities, and so have limits that an activation lacks.
    """
    if math.isfinite(value):
        return float_literal(value)
    if math.isnan(value):
        return '__builtin_nanf("")'
    return f"{'-' if value < 0 else ''}__builtin_inff()"


def _values(array: Array) -> str:
    """The values of a table as C text, by the list: a model has millions of weights."""
    if array.dtype.kind == "f":
        values = [_float_value(value) for value in array.tolist()]
    elif array.dtype.itemsize <= 2:
        return _small_integers(array)
    else:
        values = list(map(str, array.tolist()))
        limits = np.iinfo(array.dtype.name)
        if limits.min < 0:
            # The smallest value of a wide type has no literal in C.
            smallest = str(limits.min)
            values = [f"({limits.min + 1} - 1)" if v == smallest else v for v in values]
    lines = [
        ",".join(values[start : start + _VALUES_PER_LINE])
        for start in range(0, len(values), _VALUES_PER_LINE)
    ]
    return ",\n".join(lines)


@cache
def _texts(dtype: str) -> Array:
    """Of all values of an integer type, the text with a comma and two zero bytes, as one integer.

    The values are in the order of their bits.
    """
    bits = np.arange(1 << 8 * np.dtype(dtype).itemsize, dtype=f"u{np.dtype(dtype).itemsize}")
    return np.array([f"{value}," for value in bits.view(dtype).tolist()], "S8").view(np.uint64)


def _small_integers(array: Array) -> str:
    """What ``_values`` gives for integers of one or two bytes."""
    texts = _texts(array.dtype.name)[array.view(f"u{array.dtype.itemsize}")].view(np.uint8)
    # The last of the eight bytes is always free: "-32768," has seven.
    texts[8 * _VALUES_PER_LINE - 1 : -8 : 8 * _VALUES_PER_LINE] = ord("\n")
    written: bytes = texts[texts != 0].tobytes()[:-1]
    return written.decode("ascii")
