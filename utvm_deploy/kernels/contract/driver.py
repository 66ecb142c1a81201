"""The driver of a native kernel: the C function that calls its routines, in loops over blocks.

A driver has loops, calls, and addresses in buffers that depend on the loops' counters:

    with c.loop("block", 10) as block:
        c.call("utvm_gather", image.at(), patches.at(), 12 * block, 12, "border", geometry.at())

writes this C:

    for (int32_t block = 0; block < 10; ++block) {
      utvm_gather(image, patches, 12 * block, 12, border, geometry);
    }

A loop that runs once is written without ``for``, and its counter is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import TypeAlias

from utvm_deploy.graph.element_type import element_type

#: Emitted C is broken into lines of at most this length.
LINE_LENGTH = 100
#: Scratch of up to this size is an array on the C stack; larger scratch is in the arena.
_STACK_LIMIT_BYTES = 256


class _Pointer:
    """What buffers with and without a shape share."""

    name: str
    dtype: str

    @property
    def ctype(self) -> str:
        """The element's type in C."""
        # TVM's code has bool, which elsewhere is a byte.
        return "bool" if self.dtype == "bool" else element_type(self.dtype).c_type

    def at(self) -> Address:
        """The address of the first element."""
        return Address(self.name, Index())


@dataclass(frozen=True)
class Buffer(_Pointer):
    """A buffer that is passed on as it is: its name in C, the name of its element type."""

    name: str
    dtype: str


def buffers(**dtypes: str) -> tuple[Buffer, ...]:
    """Parameters that are buffers, in this order: name -> element type."""
    return tuple(Buffer(name, dtype) for name, dtype in dtypes.items())


@dataclass(frozen=True)
class Operand(_Pointer):
    """A buffer with a shape: its name in C, its shape, the name of its element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """The size of all elements."""
        return element_type(self.dtype).size_bytes(self.elements)

    @property
    def is_on_stack(self) -> bool:
        """Whether scratch of this size is on the C stack, not in the arena."""
        return self.size_bytes <= _STACK_LIMIT_BYTES

    def stride(self, axis: int) -> int:
        """Elements from one index of an axis to the next; the layout is row-major."""
        return math.prod(self.shape[axis + 1 :])

    def at(self, *index: Number) -> Address:
        """The address of an element; the index is 0 along axes that are left out."""
        element = Index()
        for axis, one in enumerate(index):
            element += one * self.stride(axis)
        return Address(self.name, element)


@dataclass(frozen=True)
class Index:
    """A sum of C expressions, each times a factor, and a constant."""

    terms: tuple[tuple[str, int], ...] = ()  # factors are not 0, expressions are distinct
    constant: int = 0

    @classmethod
    def of(cls, number: Number) -> Index:
        """A number as an index."""
        return cls(constant=number) if isinstance(number, int) else number

    @classmethod
    def named(cls, name: str) -> Index:
        """The value of a counter, or of an int32 parameter."""
        return cls(((name, 1),))

    def __add__(self, other: Number) -> Index:
        other = Index.of(other)
        factors: dict[str, int] = {}
        for expression, factor in (*self.terms, *other.terms):
            factors[expression] = factors.get(expression, 0) + factor
        terms = tuple((expression, factor) for expression, factor in factors.items() if factor)
        return Index(terms, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        terms = tuple((expression, each * factor) for expression, each in self.terms)
        return Index(terms, self.constant * factor)

    __rmul__ = __mul__

    def __mod__(self, divisor: int) -> Index:
        if not self.terms or divisor == 1:
            return Index(constant=self.constant % divisor)
        dividend = str(self) if str(self).isidentifier() else f"({self})"
        return Index.named(f"({dividend} % {divisor})")

    def is_zero(self, then: int = 1) -> int | str:
        """``then`` if this index is 0, and else 0."""
        if not self.terms:
            return 0 if self.constant else then
        return f"{self} == 0" if then == 1 else f"{self} == 0 ? {then} : 0"

    def __str__(self) -> str:
        """The C expression: the terms in their order, the constant last."""
        parts = [
            expression if factor == 1 else f"{factor} * {expression}"
            for expression, factor in self.terms
        ]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


Number: TypeAlias = "Index | int"
#: A parameter of a kernel's C function: a buffer, or the name of an int32.
KernelParameter: TypeAlias = "Operand | Buffer | str"


@dataclass(frozen=True)
class Address:
    """The address of an element of a buffer."""

    buffer: str
    element: Index

    def __str__(self) -> str:
        """The C expression."""
        return self.buffer if self.element == Index() else f"{self.buffer} + {self.element}"


#: What a routine is called with: an address, a number, or another C expression.
Argument: TypeAlias = "Address | Number | str"


class Driver:
    """Writes the statements of a driver, in the order in which its methods are called."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indent = "  "

    @contextmanager
    def loop(self, counter: str, extent: int) -> Iterator[Index]:
        """Statements that run ``extent`` times; the counter goes from 0 up."""
        if extent == 1:
            yield Index()
            return
        outer = self._indent
        self.lines.append(
            f"{outer}for (int32_t {counter} = 0; {counter} < {extent}; ++{counter}) {{"
        )
        self._indent += "  "
        yield Index.named(counter)
        self._indent = outer
        self.lines.append(f"{outer}}}")

    @contextmanager
    def loops(self, counter: str, extents: Iterable[int]) -> Iterator[list[Index]]:
        """Nested loops, the outermost first; the counters get numbers after their name."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(self.loop(f"{counter}_{axis}", extent))
                for axis, extent in enumerate(extents)
            ]

    def number(self, name: str, expression: str) -> Index:
        """Declare an int32 with the value of a C expression; gives it."""
        self.lines.append(f"{self._indent}const int32_t {name} = {expression};")
        return Index.named(name)

    def call(self, function: str, *arguments: Argument) -> None:
        """Call a C function whose result is not used."""
        # Lines are broken between arguments only: no space within one is seen by ``wrap``.
        inner = ", ".join(str(one).replace(" ", "\0") for one in arguments)
        lines = wrap(
            f"{function}({inner});",
            LINE_LENGTH,
            initial_indent=self._indent,
            subsequent_indent=f"{self._indent}    ",
        )
        self.lines += (line.replace("\0", " ") for line in lines)
