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
from typing import TYPE_CHECKING, Protocol, TypeAlias

from utvm_deploy.kernels.contract.c_function import (
    LINE_LENGTH,
    STACK_BUFFER_LIMIT_BYTES,
    CFunction,
    Parameter,
    Scratch,
    signature_and_text,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_BYTES = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "int32": 4, "float32": 4, "int64": 8}
_CTYPES = {"bool": "bool", "float32": "float"}


class _Pointer:
    """What buffers with and without a shape share."""

    name: str
    dtype: str

    @property
    def ctype(self) -> str:
        """The element's type in C."""
        return _CTYPES.get(self.dtype, f"{self.dtype}_t")

    def at(self) -> Address:
        """The address of the first element."""
        return Address(self.name, Index())


@dataclass(frozen=True)
class Buffer(_Pointer):
    """A buffer that is passed on as it is: its name in C, its element type as numpy names it."""

    name: str
    dtype: str


def buffers(**dtypes: str) -> tuple[KernelParameter, ...]:
    """Parameters that are buffers, in this order: name -> element type."""
    return tuple(Buffer(name, dtype) for name, dtype in dtypes.items())


@dataclass(frozen=True)
class Operand(_Pointer):
    """A buffer with a shape: its name in C, its shape, its element type as numpy names it."""

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
        return self.elements * _BYTES[self.dtype]

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
        return Index.named(f"({self.primary} % {divisor})")

    def is_zero(self, then: int = 1) -> int | str:
        """``then`` if this index is 0, and else 0."""
        if not self.terms:
            return 0 if self.constant else then
        return f"{self} == 0" if then == 1 else f"{self} == 0 ? {then} : 0"

    @property
    def primary(self) -> str:
        """The C expression, in parentheses unless it is one name or number."""
        return str(self) if str(self).isidentifier() else f"({self})"

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
        """Nested loops, the outermost first; the counters get numbers behind their name."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(self.loop(f"{counter}_{axis}", extent))
                for axis, extent in enumerate(extents)
            ]

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


class NativeKernel(Protocol):
    """A frozen, hashable dataclass with a kernel's shape parameters; one class per strategy.

    A class whose output may replace what was read of its input has a ``lag``, too (``lag.py``).
    """

    @property
    def name(self) -> str:
        """A C identifier that describes the kernel, such as ``conv2d_3x3_s1_16x16x16_16``."""

    @property
    def why(self) -> str:
        """What does the work, in a short phrase for the report."""

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """In the order of ``KernelCall.arguments``."""

    @property
    def scratch(self) -> tuple[Operand, ...]:
        """Working memory; small pieces lie on the stack."""

    def texts(self, core: str) -> tuple[str, ...]:
        """The C and assembly of the routines that the driver calls, ordered for a core."""

    def drive(self, c: Driver) -> None:
        """Write the driver."""

    def __hash__(self) -> int:
        """As frozen dataclasses have it."""


def is_native(kernel: object) -> TypeIs[NativeKernel]:
    """Whether a kernel has a driver of its own, not TensorIR."""
    return hasattr(kernel, "drive")


def is_on_stack(operand: Operand) -> bool:
    """Whether working memory is an array of the driver's own, not scratch in the arena."""
    return operand.size_bytes <= STACK_BUFFER_LIMIT_BYTES


def scratch_sizes(kernel: NativeKernel) -> tuple[int, ...]:
    """Bytes of each piece of scratch that the kernel asks the arena for."""
    return tuple(one.size_bytes for one in kernel.scratch if not is_on_stack(one))


def native_function(
    kernel: NativeKernel, name: str, core: str, *, outputs: int = 1, may_alias: bool = False
) -> CFunction:
    """The C function ``name`` of a kernel.

    The last ``outputs`` buffer parameters are written; the others become const. ``may_alias``
    says that an output may lie exactly on an input, which forbids ``restrict``.
    """
    pointers = [one.name for one in kernel.parameters if not isinstance(one, str)]
    written = pointers[len(pointers) - outputs :]
    local = {one.name: one for one in kernel.scratch if is_on_stack(one)}
    scratch = [one for one in kernel.scratch if one.name not in local]
    parameters = [
        Parameter(one, "int32_t", False, True)
        if isinstance(one, str)
        else Parameter(one.name, one.ctype, True, one.name in written)
        for one in kernel.parameters
    ]
    parameters += [Parameter(one.name, one.ctype, True, True) for one in scratch]
    driver = Driver()
    kernel.drive(driver)
    arrays = [f"  {one.ctype} {one.name}[{one.elements}];" for one in local.values()]
    body = "".join(f"{line}\n" for line in (*arrays, *driver.lines, "}"))
    signature, text = signature_and_text(name, parameters, body, may_alias)
    pieces = tuple(Scratch(one.name, one.dtype, one.size_bytes) for one in scratch)
    texts = tuple(dict.fromkeys(kernel.texts(core)))
    return CFunction(name, texts, signature, text, pieces)
