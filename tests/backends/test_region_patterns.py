"""Patterns are where a graph has them, and nowhere else: compared with matches by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from region_graphs import SHAPE, GraphWriter

from utvm_deploy.backends import Expression, Pattern, constant, op, optional, pattern, wildcard
from utvm_deploy.backends.patterns import parts_of
from utvm_deploy.graph.model import Graph

Roots = Expression | tuple[Expression, ...] | tuple[str, ...]


def places(graph: Graph, roots: Roots, free: range | None = None) -> list[tuple[int, ...]]:
    given = range(len(graph.operators)) if free is None else free
    return [one.positions for one in Pattern(roots).matches(graph, given)]


def diamond() -> Graph:
    """0: x max y; 1: min of that; 2: max of that; 3: both joined; 4: that and x."""
    w = GraphWriter()
    x, y = w.inputs
    top = w.add("MAXIMUM", x, y)
    left, right = w.add("MINIMUM", top, y), w.add("MAXIMUM", top, x)
    both = w.add("MINIMUM", left, right)
    return w.made(w.add("MAXIMUM", both, x))


def shared_operator() -> Expression:
    top = op("MAXIMUM")
    return op("MINIMUM")(op("MINIMUM")(top), op("MAXIMUM")(top))


def two_operators() -> Expression:
    return op("MINIMUM")(op("MINIMUM")(op("MAXIMUM")), op("MAXIMUM")(op("MAXIMUM")))


def shared_tensor() -> tuple[Expression, ...]:
    x = wildcard()
    inner = op("MAXIMUM")(x, wildcard())
    return op("MAXIMUM")(inner, x), inner


def two_outputs() -> tuple[Expression, ...]:
    top = op("MAXIMUM")
    return op("MINIMUM")(top), op("MAXIMUM")(top)


@pytest.mark.parametrize(
    ("roots", "found"),
    [
        (lambda: op("MINIMUM"), [(1,), (3,)]),
        (lambda: op("MINIMUM", "MAXIMUM")(wildcard(), wildcard()), [(0,), (1,), (2,), (3,), (4,)]),
        (lambda: op("MINIMUM")(op("MINIMUM")), [(1, 3)]),
        (lambda: op("MINIMUM")(wildcard(), op("MINIMUM")), []),
        (lambda: op("MINIMUM").reading(op("MAXIMUM")), [(2, 3)]),
        (lambda: ("MINIMUM", "MAXIMUM"), [(3, 4)]),
        # Others read what is between the operators.
        (lambda: op("MINIMUM")(op("MAXIMUM")), []),
        (shared_operator, [(0, 1, 2, 3)]),
        (two_operators, []),
        (shared_tensor, [(0, 2)]),
        (two_outputs, [(0, 1, 2)]),
        (lambda: optional("MAXIMUM")(op("MINIMUM")(op("MINIMUM"))), [(1, 3, 4)]),
        (lambda: optional("CONCATENATION")(op("MINIMUM")(op("MINIMUM"))), [(1, 3)]),
        (lambda: op("MAXIMUM")(op("MINIMUM") | op("CONCATENATION")), [(3, 4)]),
        (lambda: op("MAXIMUM")(op("CONCATENATION") | wildcard()), [(0,), (2,), (4,)]),
        (lambda: op("MAXIMUM")(constant()), []),
        (lambda: op("MAXIMUM")(wildcard(), wildcard(), wildcard()), []),
    ],
)
def test_matches_by_hand(roots: Callable[[], Roots], found: list[tuple[int, ...]]) -> None:
    assert places(diamond(), roots()) == found


def test_a_match_has_no_operator_that_is_not_free() -> None:
    assert places(diamond(), op("MINIMUM")(op("MINIMUM")), range(1, 3)) == []


def test_constants_and_predicates() -> None:
    w = GraphWriter()
    x, y = w.inputs
    some = w.tensor(np.zeros(SHAPE, np.int8))
    w.add("MAXIMUM", x, some)
    w.add("MAXIMUM", x, w.tensor(np.ones(SHAPE, np.int8)))
    w.add("CONCATENATION", x, y)
    graph = w.made(*(one.outputs[0] for one in w.operators))
    is_zero = constant().where(lambda tensor: not tensor.data.any())
    assert places(graph, op("MAXIMUM")(wildcard(), constant())) == [(0,), (1,)]
    assert places(graph, op("MAXIMUM")(wildcard(), is_zero)) == [(0,)]
    wide = op("CONCATENATION", "MAXIMUM").where(lambda one: one.result.shape[-1] == 12)
    assert places(graph, wide) == [(2,)]
    assert places(graph, wide.where(lambda one: one.source.dtype == "float32")) == []


def test_outputs_of_the_model_and_states_stay() -> None:
    w = GraphWriter()
    x, y = w.inputs
    inner = w.add("MAXIMUM", x, y)
    outer = w.add("MINIMUM", inner, y)
    chain = ("MAXIMUM", "MINIMUM")
    assert places(w.made(outer), chain) == [(0, 1)]
    assert places(w.made(outer, inner), chain) == []
    state = w.tensor()
    w.states = ((state, inner),)
    assert places(w.made(outer), chain) == []


def test_a_match_is_convex() -> None:
    """What another operator has to compute in between is no part of a match."""
    w = GraphWriter()
    x, y = w.inputs
    first = w.add("MAXIMUM", x, y)
    between = w.add("CONCATENATION", first, y)
    last = w.add("MINIMUM", first, y)
    assert places(w.made(last, between), two_outputs()) == []
    top = op("MAXIMUM")
    outputs = op("MINIMUM")(top), top
    assert places(w.made(last, between), outputs) == [(0, 2)]
    w.operators[2] = w.operators[1].__class__(
        "MINIMUM", (first, between), (last,), w.operators[2].attributes, (2,)
    )
    assert places(w.made(last), outputs) == []


def test_a_function_makes_a_pattern_and_names_are_known() -> None:
    @pattern()
    def clamp(x: Expression, low: Expression) -> Expression:
        return op("MINIMUM")(op("MAXIMUM")(x, low).named("inner"))

    w = GraphWriter()
    x, y = w.inputs
    graph = w.made(w.add("MINIMUM", w.add("MAXIMUM", x, y), x))
    (found,) = clamp.matches(graph, (0, 1))
    assert (found.operators, found.tensors) == ({"inner": 0}, {"x": x, "low": y})
    assert clamp.label == "MINIMUM+MAXIMUM"


def test_parts_that_are_used_twice_are_looked_at_once() -> None:
    """There are 2**40 ways through these operators."""
    w = GraphWriter()
    expression, tensor = wildcard(), w.inputs[0]
    for _ in range(40):
        expression, tensor = op("MAXIMUM")(expression, expression), w.add("MAXIMUM", tensor, tensor)
    assert Pattern(expression).label == "MAXIMUM"
    assert places(w.made(tensor), expression) == [tuple(range(40))]
    assert len(Pattern(("MAXIMUM",) * 3000).label) == 3000 * len("MAXIMUM+") - 1
    assert len(Pattern(("MAXIMUM",) * 3000).roots) == 1
    assert sum(1 for _ in parts_of(Pattern(("MAXIMUM",) * 3000).roots[0])) == 3000
