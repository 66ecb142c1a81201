"""States that hold the last elements of a tensor over time become states that shift in place.

before:  state ──▶ CONCATENATION ──▶ joined      joined ──▶ SLICE ──▶ next state
              x ──▶
after:   state of joined's shape, x ──▶ SHIFT ──▶ joined, which is the next state

Before, the joined tensor and the state both take RAM, and a run copies the state twice. After, a
run moves it once, within its bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, Rearrange, Shift, Variable
from utvm_deploy.graph.constant_folding import rearranged
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.rewrite import changed_operators, compacted, consumers, producers

#: A state grows by what a run adds, so it must hold this many times as much.
_LEAST_TIMES = 2


@dataclass(frozen=True)
class _Found:
    """A state: the tensors of the pattern, and the positions of its operators."""

    state: tuple[int, int]
    read: int
    join: int
    slice: int
    assign: int


def shift_states(graph: Graph) -> Graph:
    """Let states that are joined with new elements shift in place."""
    found = [one for one in (_pattern(graph, state) for state in graph.states) if one is not None]
    if not found or graph.prefill is not None:  # whose states have several pairs
        return graph
    tensors, states = list(graph.tensors), dict(graph.states)
    changes: dict[int, Operator] = {}
    for one in found:
        read, join, assign = (graph.operators[i] for i in (one.read, one.join, one.assign))
        joined, axis = join.outputs[0], _axis(join)
        shape = tensors[joined].shape
        for number in (*one.state, read.outputs[0]):
            tensor = tensors[number]
            first = None if tensor.first is None else _grown(tensor.first, shape[axis], axis)
            tensors[number] = replace(tensor, shape=shape, first=first, source=None)
        changes[one.join] = replace(
            join,
            kind="SHIFT",
            attributes=Shift(axis),
            sources=join.sources + graph.operators[one.slice].sources,
        )
        changes[one.assign] = replace(assign, inputs=(joined,))
    graph = graph.replaced(tensors=tuple(tensors), states=tuple(states.items()))
    return compacted(changed_operators(graph, changes, {one.slice for one in found}))


def _pattern(graph: Graph, state: tuple[int, int]) -> _Found | None:
    """The pattern around a state, or None where there is another."""
    made, readers = producers(graph), consumers(graph)
    found, left = state
    assign, reads = made.get(left), readers.get(found, ())
    if assign is None or len(reads) != 1 or left in graph.outputs:
        return None
    if not all(isinstance(graph.operators[i].attributes, Variable) for i in (assign, *reads)):
        return None
    value, held = graph.operators[assign].inputs[0], graph.operators[reads[0]].outputs[0]
    joins = readers.get(held, ())
    if value is None or len(joins) != 1 or {value, held} & set(graph.outputs):
        return None
    taken = made.get(value)
    if taken is None or readers[value] != [assign]:
        return None
    join, part = graph.operators[joins[0]], graph.operators[taken]
    if not _is_shift(graph, join, part):
        return None
    return _Found(state, reads[0], joins[0], taken, assign)


def _is_shift(graph: Graph, join: Operator, part: Operator) -> bool:
    """Whether two tensors are joined, of which ``part`` takes as much as the first, at the end."""
    a, taken = join.attributes, part.attributes
    if not isinstance(a, Concatenation) or a.stacks or not isinstance(taken, Rearrange):
        return False
    if len(join.inputs) != 2 or None in join.inputs or part.inputs[0] != join.outputs[0]:
        return False
    one, other, joined = (
        graph.tensors[i] for i in (*join.inputs, join.outputs[0]) if i is not None
    )
    kept, added = one.shape[a.axis], other.shape[a.axis]
    if kept < _LEAST_TIMES * added or other.data is not None:
        return False
    places = np.arange(math.prod(joined.shape)).reshape(joined.shape)
    last = np.take(places, range(added, kept + added), a.axis)
    return np.array_equal(rearranged(places, taken).reshape(-1), last.reshape(-1))


def _axis(join: Operator) -> int:
    assert isinstance(join.attributes, Concatenation)
    return join.attributes.axis


def _grown(first: Array, extent: int, axis: int) -> Array:
    """The first values with some before them, which the first run moves away."""
    missing = [(0, 0)] * first.ndim
    missing[axis] = (extent - first.shape[axis], 0)
    return np.pad(first, missing, mode="edge")
