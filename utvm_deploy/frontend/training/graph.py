"""The graph of a train step: weights are states, and operators are in an order of three parts.

    what the output needs ─▶ what the loss needs ─▶ gradients and updates

So a run of the first part is the model, and a step whose loss is not finite can end before any
weight has changed. An update comes as soon as its gradient is there and nothing else reads the
weight. So few gradients are in the arena at one time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import tvm_ffi
from tvm import s_tir
from tvm_ffi.serialization import from_json_graph_str

from utvm_deploy.frontend.relax.road import relax_graph, relax_model
from utvm_deploy.frontend.training.step import TrainStep
from utvm_deploy.frontend.training.stored import HEADER
from utvm_deploy.graph.attributes import CallTir
from utvm_deploy.graph.model import Graph, Tensor, Training
from utvm_deploy.graph.rewrite import consumers, producers

_SPATIAL = 0  # TVM's number for a block's dimension whose elements are independent


def step_graph(step: TrainStep, name: str, digest: str) -> Graph:
    """The graph of a step; ``digest`` is that of the model and of the layers that train."""
    graph = relax_graph(relax_model(step.module), name).replaced(digest=digest)
    count = len(step.states)
    given, inputs = graph.inputs[-count:], graph.inputs[:-count]
    left, at, again = graph.outputs[2:], step.weights, len(step.order) - 1
    given = (*given[: at + 1], *left[at : at + again], *given[at + 1 :])
    named = (*step.states[:at], *step.states[at : at + 1] * again, *step.states[at:])
    tensors = list(graph.tensors)
    for number, new, (label, first) in zip(given, left, named, strict=True):
        for one in {number, new}:
            tensors[one] = replace(tensors[one], name=label, first=first, source=None)
    header, rate = len(tensors), len(tensors) + 1
    tensors += (_header(), replace(tensors[given[at]], name="learning rate"))
    pairs = list(zip(given, left, strict=True))
    made = graph.replaced(
        tensors=tuple(tensors),
        inputs=inputs,
        outputs=graph.outputs[:2],
        states=((header, header), *pairs[:at], (rate, rate), *pairs[at:]),
        training=Training(step.weights, step.classes),
    )
    known, own = left[at + again + 1 :], step.own
    updates = [*known[step.weights * own :]]
    for place, weight in enumerate(step.order, at):
        updates += [left[place], *known[weight * own : (weight + 1) * own], left[weight]]
    return _ordered(_in_place(made), updates)


def _header() -> Tensor:
    shape = (HEADER.size,)
    return Tensor("header of the weights", shape, "uint8", first=np.zeros(shape, np.uint8))


def _in_place(graph: Graph) -> Graph:
    """The graph in which operators may write onto an input of which each element makes one."""
    operators = list(graph.operators)
    function = cache(from_json_graph_str)

    @cache
    def may_replace(text: str, place: int) -> bool:
        return _reads_where_it_writes(function(text), place)

    for position, operator in enumerate(operators):
        a = operator.attributes
        if not isinstance(a, CallTir) or len(operator.outputs) != 1:
            continue
        made = graph.tensors[operator.outputs[0]]
        places = tuple(
            place
            for place, number in enumerate(operator.inputs)
            if number is not None
            and (graph.tensors[number].shape, graph.tensors[number].dtype)
            == (made.shape, made.dtype)
            and operator.inputs.count(number) == 1
            and may_replace(a.text, place)
        )
        if places:
            operators[position] = replace(operator, attributes=replace(a, in_place=places))
    return graph.replaced(operators=tuple(operators))


def _reads_where_it_writes(function: Any, place: int) -> bool:
    """Whether an element of this parameter is read only to make the output's same element."""
    followed = [function.params[place]]
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, blocks.append))
    for block in blocks:
        reads = [one for one in block.reads if any(one.source.same_as(f) for f in followed)]
        if not reads or block.name_hint == "root":
            continue
        write = block.writes[0]
        if (
            len(block.writes) > 1
            or any(int(one.iter_type) != _SPATIAL for one in block.iter_vars)
            # Loops within a block may read in any order.
            or any(int(one.extent) != 1 for one in write.region)
            or not all(
                tvm_ffi.structural_equal(list(write.region), list(read.region)) for read in reads
            )
        ):
            return False
        followed.append(write.source)
    return len(followed) > 1


def _ordered(graph: Graph, updates: Sequence[int]) -> Graph:
    operators = graph.operators
    forward = _needed(graph, graph.outputs[:-1])
    lost = _needed(graph, graph.outputs[-1:]) - forward
    rest = [i for i in range(len(operators)) if i not in forward | lost]
    order = [*sorted(forward), *sorted(lost), *_with_early_updates(graph, rest, updates)]
    return graph.replaced(operators=tuple(operators[i] for i in order))


def _needed(graph: Graph, tensors: Sequence[int]) -> set[int]:
    """The positions of the operators that tensors depend on."""
    found, read = set[int](), set[int | None](tensors)
    for position, operator in reversed([*enumerate(graph.operators)]):
        if read & {*operator.outputs}:
            found.add(position)
            read |= {*operator.inputs}
    return found


def _with_early_updates(
    graph: Graph, positions: Sequence[int], states: Sequence[int]
) -> Iterator[int]:
    """The positions in an order in which each new state is made as early as it may be.

    ``states`` keep their order: the rate that refuses an update comes before it.
    """
    replaced = {left: found for found, left in graph.states}
    read, made = consumers(graph), producers(graph)
    updates = [made[state] for state in states]
    others = [i for i in positions if i not in updates]
    waiting = {*positions}

    def is_ready(position: int) -> bool:
        operator = graph.operators[position]
        readers = {*read.get(replaced[operator.outputs[0]], ())} - {position}
        needed = {made[i] for i in operator.inputs if i in made}
        return not waiting & (readers | needed)

    def due() -> Iterator[int]:
        while updates and is_ready(updates[0]):
            waiting.discard(updates[0])
            yield updates.pop(0)

    for position in others:
        yield from due()
        waiting.discard(position)
        yield position
    yield from due()
    assert not updates, "each update is ready once all gradients are there"
