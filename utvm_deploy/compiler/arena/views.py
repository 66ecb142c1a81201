"""Which operators need no code: their output can be within their input's bytes, or around them.

A slice that is one run of bytes is a part of its source. Tensors that are joined along the
outermost dimension are made at their place in the output. Kernels have the same requirements for
them as for any buffer, so both begin at aligned addresses. Views are only made as long as the
arena, scratch aside, does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from utvm_deploy.compiler.arena import arenas
from utvm_deploy.compiler.arena.plan import Step, View, is_view
from utvm_deploy.compiler.arena.shared_bytes import BUFFER_ALIGNMENT
from utvm_deploy.compiler.arena.state_views import state_views
from utvm_deploy.graph.attributes import Concatenation, Rearrange
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import producers
from utvm_deploy.kernels.portable.layout import loops_of

#: Of more operators those of one layer become views together: a plan is made for each group.
_MOST_TRIED = 16
#: With more groups, all become views, or none.
_MOST_GROUPS = 60

StepOf = Callable[[Operator], Step]


def with_views(graph: Graph, step_of: StepOf) -> tuple[Step | View, ...]:
    """Views where there can be some, and what ``step_of`` says for all other operators."""
    steps = {i: step_of(o) for i, o in enumerate(graph.operators) if not is_view(graph, o)}
    in_place = {
        (position, *pair) for position, step in steps.items() for pair in step.call.in_place
    }
    kept = state_views(graph, in_place)
    found = _possible(graph, kept)
    for position in kept:
        del steps[position]

    def sequence(chosen: Collection[int]) -> tuple[Step | View, ...]:
        made: list[Step | View] = []
        for position in range(len(graph.operators)):
            if position in chosen or position not in steps:
                made += found[position]
            else:
                made.append(steps[position])
        return tuple(made)

    def arena_bytes(chosen: Collection[int], enough: int = 0) -> int:
        return arenas.arena_bytes(graph, sequence(chosen), enough)

    tried = [position for position in found if position in steps]
    if not tried:
        return sequence(())
    # The first question is often answered without the arena that copies would take.
    lowest = arenas.least_bytes(graph, sequence(()))
    if arena_bytes(tried, lowest) <= lowest:
        return sequence(tried)
    least = arena_bytes(())
    if arena_bytes(tried, least) <= least:
        return sequence(tried)
    chosen: list[int] = []
    for group in _groups(graph, tried):
        needed = arena_bytes([*chosen, *group])
        if needed <= least:
            chosen += group
            least = needed
    return sequence(chosen)


def _groups(graph: Graph, positions: list[int]) -> list[list[int]]:
    """What is tried together: the strips of a layer, where there are many operators."""
    if len(positions) <= _MOST_TRIED:
        return [[position] for position in positions]
    groups: dict[object, list[int]] = {}
    for position in positions:
        operator = graph.operators[position]
        is_result = graph.tensors[operator.outputs[0]].rows is None
        groups.setdefault((operator.kind, operator.sources, is_result), []).append(position)
    return list(groups.values()) if len(groups) <= _MOST_GROUPS else []


def _possible(graph: Graph, states: Mapping[int, View]) -> dict[int, tuple[View, ...]]:
    """Position of an operator -> the views that it can be; at most one place for every tensor.

    ``states`` gives the tensors in a state, where nothing else may be then.
    """
    found: dict[int, tuple[View, ...]] = {position: (view,) for position, view in states.items()}
    kept = {tensor for pair in graph.states for tensor in pair}
    kept |= {tensor for view in states.values() for tensor in (view.source, view.result)}
    made, joined = producers(graph), set[int]()
    for position, operator in enumerate(graph.operators):
        output = operator.outputs[0]
        if is_view(graph, operator):
            assert operator.inputs[0] is not None
            found[position] = (View(operator, operator.inputs[0], output),)
        elif isinstance(operator.attributes, Rearrange):
            view = _slice(graph, operator)
            if view is not None and not {view.source, output} & kept:
                found[position] = (view,)
        elif isinstance(operator.attributes, Concatenation):
            views = _join(graph, operator)
            bases = [_base(graph, made, found, view.source) for view in views]
            fresh = [base for base in bases if base is not None and base not in joined | kept]
            if views and len(set(fresh)) == len(views) and output not in kept:
                joined.update(fresh)
                found[position] = views
    return found


def _slice(graph: Graph, operator: Operator) -> View | None:
    """The view that takes one run of the input's elements, in their order."""
    a, source, output = operator.attributes, operator.inputs[0], operator.outputs[0]
    assert isinstance(a, Rearrange)
    if source is None or graph.tensors[source].data is not None:
        return None
    if source in graph.inputs and output in graph.outputs:
        return None  # a caller that takes outputs may have written the next inputs before
    start, loops = loops_of(a)
    if len(loops) != 1 or (np.diff(loops[0][1]) != 1).any():
        return None
    offset = graph.tensors[source].element.size_bytes(start)
    return View(operator, source, output, offset) if offset % BUFFER_ALIGNMENT == 0 else None


def _join(graph: Graph, operator: Operator) -> tuple[View, ...]:
    """A view for each input if all are in the output one after the other; none otherwise."""
    a, output = operator.attributes, operator.outputs[0]
    assert isinstance(a, Concatenation)
    if math.prod(graph.tensors[output].shape[: a.axis]) != 1:
        return ()
    views: list[View] = []
    offset = 0
    for source in operator.inputs:
        if source is None or graph.tensors[source].data is not None or offset % BUFFER_ALIGNMENT:
            return ()
        views.append(View(operator, source, output, -offset))
        offset += graph.tensors[source].size_bytes
    return tuple(views)


def _base(
    graph: Graph, made: dict[int, int], found: Mapping[int, tuple[View, ...]], tensor: int
) -> int | None:
    """The tensor that some code writes where this one is; None where that is not its whole."""
    while tensor in made:
        operator = graph.operators[made[tensor]]
        if not is_view(graph, operator):
            return None if made[tensor] in found else tensor
        assert operator.inputs[0] is not None
        tensor = operator.inputs[0]
    return None
