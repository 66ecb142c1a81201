"""Patterns of operators: expressions over the graph, and where a graph has them.

    x = wildcard()
    residual = op("ADD")(op("CONV_2D")(x).named("conv"), x)

An expression that is used twice is one operator or one tensor. Two different ``op`` are never the
same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from utvm_deploy.backends.edges import Edges
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.operation import Operation

_E = TypeVar("_E", bound="Expression")


@dataclass(frozen=True, eq=False)
class Expression:
    """What a tensor may be: a constant, what an operator makes, or anything (``wildcard``)."""

    name: str = field(default="", kw_only=True)
    predicate: Callable[[Any], bool] | None = field(default=None, kw_only=True, repr=False)

    def where(self: _E, predicate: Callable[[Any], bool]) -> _E:
        """The same with a condition, which comes after earlier ones.

        ``predicate`` gets the ``Operation`` of ``op``, else the ``Tensor``.
        """
        before = self.predicate
        both = predicate if before is None else lambda one: before(one) and predicate(one)
        return replace(self, predicate=both)

    def named(self: _E, name: str) -> _E:
        """The same with a name, for ``Match.operation`` and ``Match.tensor``."""
        return replace(self, name=name)

    def __or__(self, other: Expression) -> Expression:
        """Either of both; the first one is tried first."""
        return Either((*self.options, other) if isinstance(self, Either) else (self, other))


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """A constant."""


@dataclass(frozen=True, eq=False)
class Either(Expression):
    """One of several expressions."""

    options: tuple[Expression, ...] = ()


@dataclass(frozen=True, eq=False)
class Op(Expression):
    """An operator of one of these kinds; as an input of another one: any of its outputs."""

    kinds: tuple[str, ...] = ()
    #: What its first inputs are; further ones may be anything.
    inputs: tuple[Expression, ...] = ()
    #: What one of its inputs is, wherever it is.
    reads: Expression | None = None

    def __call__(self, *inputs: Expression) -> Op:
        """The operator with these as its first inputs."""
        return replace(self, inputs=inputs)

    def reading(self, source: Expression) -> Op:
        """The operator with this as one of its inputs, wherever it is."""
        return replace(self, reads=source)

    def output(self, index: int) -> Expression:
        """One of several outputs, for inputs of other operators."""
        return Output(self, index)


@dataclass(frozen=True, eq=False)
class Output(Expression):
    """An output of an operator."""

    operator: Op
    index: int


def wildcard() -> Expression:
    """Any tensor."""
    return Expression()


def constant() -> Expression:
    """A constant; ``.where(lambda tensor: ...)`` may look at ``tensor.data``."""
    return Constant()


def op(*kinds: str) -> Op:
    """An operator of one of these kinds, which are TFLite's names, such as "CONV_2D"."""
    return Op(kinds)


def optional(*kinds: str) -> Callable[[Expression], Expression]:
    """``optional("RELU")(x)``: an operator RELU that reads x, or x itself."""
    return lambda source: Op(kinds, (source,)) | source


def parts_of(expression: Expression) -> Iterator[Expression]:
    """An expression and all in it, each once."""
    seen: set[Expression] = set()
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        yield one
        inside: tuple[Expression, ...] = ()
        if isinstance(one, Either):
            inside = one.options
        elif isinstance(one, Op):
            inside = (*one.inputs, *((one.reads,) if one.reads else ()))
        elif isinstance(one, Output):
            inside = (one.operator,)
        waiting += reversed(inside)


def chain(kinds: Sequence[str]) -> Expression:
    """Neighbours: each operator reads what the one before it makes."""
    first, *others = (Op((kind,)) for kind in kinds)
    for one in others:
        first = one.reading(first)
    return first


@dataclass(frozen=True, eq=False)
class Found:
    """Where a graph has a pattern."""

    #: Positions of the operators, in the order in which they run.
    positions: tuple[int, ...]
    #: Position of the operator, or number of the tensor, that an expression with this name is.
    operators: Mapping[str, int]
    tensors: Mapping[str, int]


#: What expressions are: the position of an operator for ``op``, else the number of a tensor.
_Bound = Mapping[Expression, int]


def matches(graph: Graph, roots: Sequence[Expression], free: Collection[int]) -> tuple[Found, ...]:
    """Where operators at the ``free`` positions are as ``roots`` say, which are their outputs.

    What other operators make in between, only operators of the match read, and the model has other
    outputs. Of matches that have an operator in common, that with the most operators is taken,
    then the first one.
    """
    matcher = _Matcher(graph, frozenset(free))
    found = [one for one in map(lambda start: matcher.at(roots, start), sorted(free)) if one]
    taken: set[int] = set()
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: (-len(one.positions), one.positions[-1])):
        if taken.isdisjoint(one.positions):
            taken.update(one.positions)
            kept.append(one)
    return tuple(sorted(kept, key=lambda one: one.positions[-1]))


class _Matcher:
    """Tries expressions at places of a graph."""

    def __init__(self, graph: Graph, free: frozenset[int]) -> None:
        self._graph, self._free, self._edges = graph, free, Edges(graph)

    def at(self, roots: Sequence[Expression], start: int) -> Found | None:
        """The first match whose first root is an operator's output, if there is one."""
        for output in self._graph.operators[start].outputs:
            for bound in self._roots(roots, (output,), {}):
                if found := self._found(roots, bound):
                    return found
        return None

    def _roots(
        self, roots: Sequence[Expression], outputs: Sequence[int], bound: _Bound
    ) -> Iterator[_Bound]:
        if not roots:
            yield bound
            return
        first, *others = roots
        for output in outputs:
            for one in self._tensor(first, output, bound):
                yield from self._roots(others, self._made if others else (), one)

    @cached_property
    def _made(self) -> tuple[int, ...]:
        return tuple(n for p in sorted(self._free) for n in self._graph.operators[p].outputs)

    def _found(self, roots: Sequence[Expression], bound: _Bound) -> Found | None:
        inside = {place for one, place in bound.items() if isinstance(one, Op)}
        ends = {self._end(one, bound) for one in roots}
        kept, read = self._edges.kept, self._edges.readers
        for position in inside - ends:
            for number in self._graph.operators[position].outputs:
                readers = read.get(number, ())
                if number in kept or not readers or not inside.issuperset(readers):
                    return None
        if not ends <= inside or not self._edges.is_convex(inside):
            return None
        named = [(one, place) for one, place in bound.items() if one.name]
        return Found(
            tuple(sorted(inside)),
            {one.name: place for one, place in named if isinstance(one, Op)},
            {one.name: place for one, place in named if not isinstance(one, Op)},
        )

    def _end(self, root: Expression, bound: _Bound) -> int:
        """The position of the operator that makes a root."""
        place = bound[root]
        return place if isinstance(root, Op) else self._edges.makers.get(place, -1)

    def _tensor(self, wanted: Expression, number: int | None, bound: _Bound) -> Iterator[_Bound]:
        """All ways in which a tensor is as an expression says."""
        if number is None:
            return
        place = self._edges.makers.get(number, -1) if isinstance(wanted, Op) else number
        if wanted in bound:
            if bound[wanted] == place:
                yield bound
        elif isinstance(wanted, Op):
            yield from self._operator(wanted, place, bound)
        elif self._is_kind(wanted, number):
            bound = {**bound, wanted: number}
            if isinstance(wanted, Either):
                for option in wanted.options:
                    yield from self._tensor(option, number, bound)
            elif isinstance(wanted, Output):
                maker = self._edges.makers.get(number, -1)
                outputs = self._graph.operators[maker].outputs if maker >= 0 else ()
                if outputs[wanted.index : wanted.index + 1] == (number,):
                    yield from self._tensor(wanted.operator, number, bound)
            else:
                yield bound

    def _is_kind(self, wanted: Expression, number: int) -> bool:
        tensor = self._graph.tensors[number]
        if isinstance(wanted, Constant) and tensor.data is None:
            return False
        return wanted.predicate is None or bool(wanted.predicate(tensor))

    def _operator(self, wanted: Op, position: int, bound: _Bound) -> Iterator[_Bound]:
        if position not in self._free or self._graph.operators[position].kind not in wanted.kinds:
            return
        if any(place == position for one, place in bound.items() if isinstance(one, Op)):
            return
        operator = self._graph.operators[position]
        if wanted.predicate and not wanted.predicate(Operation(self._graph, operator)):
            return
        if len(wanted.inputs) > len(operator.inputs):
            return
        for one in self._inputs(wanted.inputs, operator.inputs, {**bound, wanted: position}):
            if wanted.reads is None:
                yield one
            else:
                for number in dict.fromkeys(operator.inputs):
                    yield from self._tensor(wanted.reads, number, one)

    def _inputs(
        self, wanted: Sequence[Expression], numbers: Sequence[int | None], bound: _Bound
    ) -> Iterator[_Bound]:
        if not wanted:
            yield bound
            return
        for one in self._tensor(wanted[0], numbers[0], bound):
            yield from self._inputs(wanted[1:], numbers[1:], one)
