"""The driver of a native kernel: the C function that calls its routines, in loops over blocks.

A driver has loops, calls, and places in buffers that depend on the loops' counters:

    with c.loop(10) as block:
        c.call("utvm_gather", image.at(), patches.at(), block * 12, 12, "border", geometry.at())

A counter's loop that runs once is no loop: its counter is 0. The C is the same on every run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from utvm_deploy.kernels.contract.c_function import (
    STACK_BUFFER_LIMIT_BYTES,
    CFunction,
    Parameter,
    Scratch,
    signature_and_text,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_BYTES = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "int32": 4, "float32": 4, "int64": 8}


@dataclass(frozen=True)
class Operand:
    """A buffer: its name, shape and element type (numpy's name)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * _BYTES[self.dtype]

    @property
    def ctype(self) -> str:
        """The element's type in C."""
        return self.dtype if self.dtype in ("bool",) else _CTYPES.get(self.dtype, f"{self.dtype}_t")

    def stride(self, axis: int) -> int:
        """Elements from one index of an axis to the next."""
        return math.prod(self.shape[axis + 1 :])

    def at(self, element: Number = 0) -> Place:
        """The address of an element, counted over the whole buffer."""
        return Place(self.name, Index.of(element))


_CTYPES = {"float32": "float"}
_MOST_TIMES = 16  # see shared_scratch

# An expression of C: a leaf (text), or an operator and its operands.
_Tree: TypeAlias = "str | tuple[str, _Tree, _Tree]"


@dataclass(frozen=True)
class Index:
    """A sum of counters, each times a factor, and a constant."""

    terms: tuple[tuple[_Tree, int], ...] = ()  # no factor is 0, no counter stands twice
    constant: int = 0

    @classmethod
    def of(cls, number: Number) -> Index:
        """A number as an index."""
        return cls(constant=number) if isinstance(number, int) else number

    @classmethod
    def named(cls, parameter: str) -> Index:
        """The value of a parameter of int32."""
        return cls(((parameter, 1),))

    def __add__(self, other: Number) -> Index:
        other = Index.of(other)
        factors: dict[_Tree, int] = {}
        for tree, factor in (*self.terms, *other.terms):
            factors[tree] = factors.get(tree, 0) + factor
        terms = tuple((tree, factor) for tree, factor in factors.items() if factor)
        return Index(terms, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        terms = tuple((tree, each * factor) for tree, each in self.terms)
        return Index(terms, self.constant * factor)

    __rmul__ = __mul__

    def __mod__(self, divisor: int) -> Index:
        if not self.terms or divisor == 1:
            return Index(constant=self.constant % divisor)
        is_power = divisor & (divisor - 1) == 0
        operation = ("&", divisor - 1) if is_power else ("%", divisor)
        return Index((((operation[0], self.tree(), str(operation[1])), 1),))

    def is_zero(self, then: int = 1) -> Index:
        """``then`` where it is 0, else 0."""
        if not self.terms:
            return Index(constant=then if self.constant == 0 else 0)
        return Index(((("?", ("==", self.tree(), "0"), f"{then} : 0"), 1),))

    def tree(self) -> _Tree:
        """The expression: the terms in their order, the constant last."""
        parts: list[_Tree] = [
            tree if factor == 1 else ("*", tree, str(factor)) for tree, factor in self.terms
        ]
        if not parts:
            return str(self.constant)
        found = parts[0]
        for part in parts[1:]:
            found = ("+", found, part)
        if self.constant:
            found = ("+" if self.constant > 0 else "-", found, str(abs(self.constant)))
        return found


Number: TypeAlias = "Index | int"


@dataclass(frozen=True)
class Place:
    """The address of an element of a buffer."""

    buffer: str
    element: Index


#: What a routine is called with: an address, a number, or a parameter of int32 by its name.
Argument: TypeAlias = "Place | Number | str"


@dataclass
class _Call:
    function: str
    arguments: list[tuple[str, _Tree]]  # the buffer whose element's address it is, or ""


@dataclass
class _Loop:
    counter: str
    extent: int
    body: list[_Statement] = field(default_factory=list)


@dataclass
class _Claim:
    text: str


_Statement: TypeAlias = "_Call | _Loop | _Claim"


class Driver:
    """The statements of a driver, in the order in which its methods are called."""

    def __init__(self, c_names: Mapping[str, str] | None = None) -> None:
        self._c_names = c_names or {}  # of buffers that have another name in C
        self._counters = 0
        self._body: list[_Statement] = []
        self._open = [self._body]

    @contextmanager
    def loop(self, extent: int) -> Iterator[Index]:
        """Statements that run ``extent`` times; the counter goes from 0 up."""
        if extent == 1:
            yield Index()
            return
        name = f"v_{self._counters}" if self._counters else "v"
        self._counters += 1
        made = _Loop(name, extent)
        self._open[-1].append(made)
        self._open.append(made.body)
        yield Index(((name, 1),))
        self._open.pop()

    def call(self, function: str, *arguments: Argument) -> None:
        """Call a C function whose result does not matter."""
        made: list[tuple[str, _Tree]] = []
        for one in arguments:
            if isinstance(one, Place):
                made.append((self._c_name(one.buffer), one.element.tree()))
            else:
                made.append(("", one if isinstance(one, str) else Index.of(one).tree()))
        self._open[-1].append(_Call(function, made))

    def claim(self, scratch: Operand) -> None:
        """Write 0 to the last element of scratch."""
        place = f"{self._c_name(scratch.name)}[{scratch.elements - 1}]"
        cast = "" if scratch.dtype == "int32" else f"({scratch.ctype})"
        self._open[-1].append(_Claim(f"{place} = {cast}0;"))

    def lines(self) -> list[str]:
        """The statements as C, without the braces around them all."""
        return _Writer(self._body).lines(self._body, "  ")

    def _c_name(self, buffer: str) -> str:
        return self._c_names.get(buffer, buffer)


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
    def parameters(self) -> tuple[Operand | str, ...]:
        """In the order of ``KernelCall.arguments``; a str is a parameter of int32."""

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


def shared_scratch(pieces: Sequence[Operand]) -> tuple[Operand, ...]:
    """Where each piece lies of scratch that is needed one piece at a time.

    Like TVM: where an earlier one lies that is as large, but not more than 16 times as large.
    """
    found: list[Operand] = []
    for one in pieces:
        size = one.size_bytes
        fitting = (o for o in found if size <= o.size_bytes <= _MOST_TIMES * size)
        found.append(next(fitting, one))
    return tuple(found)


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
    operands = [one for one in kernel.parameters if isinstance(one, Operand)]
    written = {one.name for one in operands[len(operands) - outputs :]}
    local = {one.name: one for one in kernel.scratch if is_on_stack(one)}
    scratch = [one for one in kernel.scratch if one.name not in local]
    parameters = [
        Parameter(one, "int32_t", False, True)
        if isinstance(one, str)
        else Parameter(one.name, one.ctype, True, one.name in written)
        for one in kernel.parameters
    ]
    parameters += [Parameter(one.name, one.ctype, True, True) for one in scratch]
    # As TVM names arrays.
    driver = Driver({name: f"{name}_ptr" for name in local})
    kernel.drive(driver)
    arrays = [f"  {one.ctype} {one.name}_ptr[{one.elements}];" for one in local.values()]
    body = "".join(f"{line}\n" for line in (*arrays, *driver.lines(), "}"))
    signature, text = signature_and_text(name, parameters, body, may_alias)
    pieces = tuple(Scratch(one.name, one.dtype, one.size_bytes) for one in scratch)
    texts = tuple(dict.fromkeys(kernel.texts(core)))
    return CFunction(name, texts, signature, text, pieces)


class _Writer:
    """Writes statements; what a block computes several times gets a name there."""

    def __init__(self, body: list[_Statement]) -> None:
        self._shared: dict[int, list[_Tree]] = {}  # by the block's identity
        self._plan(body, frozenset())
        places = [(block, tree) for block, trees in self._shared.items() for tree in trees]
        # As TVM counts names: what is less deep comes first.
        places.sort(key=lambda place: _depth(place[1]))
        self._names = {place: f"cse_v{n}" for n, place in enumerate(places, 1)}

    def lines(
        self, body: list[_Statement], indent: str, outer: Mapping[_Tree, str] | None = None
    ) -> list[str]:
        """C statements; ``outer`` are the names that blocks around this one give."""
        found: list[str] = []
        names = dict(outer or {})
        for statement in body:
            used = set(_trees(statement, names))
            for tree in self._shared[id(body)]:
                if tree not in names and tree in used:
                    name = self._names[id(body), tree]
                    found.append(f"{indent}int32_t {name} = {_text(tree, names)};")
                    names[tree] = name
            found += self._statement(statement, indent, names)
        return found

    def _plan(self, body: list[_Statement], outer: frozenset[_Tree]) -> None:
        """Find the expressions that get a name in this block and in those within it."""
        counts = _counts(body, outer)
        inner = [_counts(one.body, outer) for one in body if isinstance(one, _Loop)]
        several = [
            tree
            for tree, count in counts.items()
            # What only one loop's statements compute is named there.
            if count > 1 and tree not in outer and not any(each[tree] == count for each in inner)
        ]
        chosen: list[_Tree] = []
        for tree in sorted(several, key=_depth, reverse=True):
            left = _counts(body, outer | set(chosen))[tree]
            # The names of larger expressions are computed once each.
            left += sum(tree in _parts(part, chosen) for one in chosen for part in one[1:])
            if left > 1:
                chosen.append(tree)
        self._shared[id(body)] = sorted((t for t in several if t in chosen), key=_depth)
        for one in body:
            if isinstance(one, _Loop):
                self._plan(one.body, outer | set(chosen))

    def _statement(self, one: _Statement, indent: str, names: Mapping[_Tree, str]) -> list[str]:
        if isinstance(one, _Loop):
            head = f"for (int32_t {one.counter} = 0; {one.counter} < {one.extent}; ++{one.counter})"
            inner = self.lines(one.body, indent + "  ", names)
            return [f"{indent}{head} {{", *inner, f"{indent}}}"]
        if isinstance(one, _Claim):
            return [indent + one.text]
        arguments = (
            f"(&({buffer}[{_text(tree, names)}]))" if buffer else _text(tree, names)
            for buffer, tree in one.arguments
        )
        return [f"{indent}{one.function}({', '.join(arguments)});"]


def _counts(body: Sequence[_Statement], names: Collection[_Tree]) -> Counter[_Tree]:
    """How often statements compute each expression, if some have names already."""
    return Counter(tree for one in body for tree in _trees(one, names))


def _trees(one: _Statement, names: Collection[_Tree]) -> Iterator[_Tree]:
    """Every expression that a statement computes and that is worth a name, the outer first."""
    if isinstance(one, _Loop):
        for inner in one.body:
            yield from _trees(inner, names)
    elif isinstance(one, _Call):
        for _, tree in one.arguments:
            yield from _parts(tree, names)


def _parts(tree: _Tree, names: Collection[_Tree] = ()) -> Iterator[_Tree]:
    if not isinstance(tree, str):
        yield tree
        if tree not in names:
            yield from _parts(tree[1], names)
            yield from _parts(tree[2], names)


def _depth(tree: _Tree) -> int:
    return 0 if isinstance(tree, str) else 1 + max(_depth(tree[1]), _depth(tree[2]))


def _text(tree: _Tree, names: Mapping[_Tree, str]) -> str:
    if tree in names:
        return names[tree]
    if isinstance(tree, str):
        return tree
    operator, left, right = tree
    return f"({_text(left, names)} {operator} {_text(right, names)})"
