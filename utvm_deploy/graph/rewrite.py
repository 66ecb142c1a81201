"""The few graph edits that import and passes are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from utvm_deploy.graph.attributes import Reshape
from utvm_deploy.graph.model import Graph, Operator


def compacted(graph: Graph) -> Graph:
    """The graph without tensors that nothing uses, the rest renumbered in the same order."""
    used = {*graph.inputs, *graph.outputs}
    used.update(found for found, left in graph.states if found == left)  # which no run changes
    for operator in graph.operators:
        used.update(i for i in operator.inputs if i is not None)
        used.update(operator.outputs)
    kept = sorted(used)
    numbers = {old: new for new, old in enumerate(kept)}
    return graph.replaced(
        tensors=tuple(graph.tensors[old] for old in kept),
        operators=tuple(renumbered(operator, numbers) for operator in graph.operators),
        inputs=tuple(numbers[i] for i in graph.inputs),
        outputs=tuple(numbers[i] for i in graph.outputs),
        states=tuple(
            (numbers[found], numbers[left])
            for found, left in graph.states
            if found in numbers and left in numbers
        ),
    )


def renumbered(operator: Operator, numbers: Mapping[int, int]) -> Operator:
    """The operator with tensor numbers replaced where ``numbers`` has them."""
    inputs = tuple(None if i is None else numbers.get(i, i) for i in operator.inputs)
    outputs = tuple(numbers.get(i, i) for i in operator.outputs)
    if (inputs, outputs) == (operator.inputs, operator.outputs):
        return operator
    return replace(operator, inputs=inputs, outputs=outputs)


def with_own_outputs(graph: Graph) -> Graph:
    """The graph with a copy of each output that is also an input, constant or earlier output."""
    tensors, operators = list(graph.tensors), list(graph.operators)
    outputs: list[int] = []
    for number in graph.outputs:
        tensor, copy, position = tensors[number], len(tensors), len(operators)
        if number not in (*graph.inputs, *outputs) and tensor.data is None:
            outputs.append(number)
            continue
        tensors.append(replace(tensor, name=f"{tensor.name}_copy", data=None))
        operators.append(Operator("RESHAPE", (number,), (copy,), Reshape(), (position,)))
        outputs.append(copy)
    if len(tensors) == len(graph.tensors):
        return graph
    return graph.replaced(
        tensors=tuple(tensors), operators=tuple(operators), outputs=tuple(outputs)
    )


def producers(graph: Graph) -> dict[int, int]:
    """Tensor -> position of the operator that makes it."""
    return {
        output: position
        for position, operator in enumerate(graph.operators)
        for output in operator.outputs
    }


def consumers(graph: Graph) -> dict[int, list[int]]:
    """Tensor -> positions of the operators that read it, once per operator."""
    found: dict[int, list[int]] = {}
    for position, operator in enumerate(graph.operators):
        for number in {i for i in operator.inputs if i is not None}:
            found.setdefault(number, []).append(position)
    return found


def only_pairs(graph: Graph) -> Iterator[tuple[int, int]]:
    """Positions (producer, consumer) where the consumer's first input goes nowhere else."""
    made, read = producers(graph), consumers(graph)
    for position, operator in enumerate(graph.operators):
        number = operator.inputs[0]
        if number is None or number not in made or number in graph.outputs:
            continue
        if read[number] == [position] and operator.inputs.count(number) == 1:
            yield made[number], position


def changed_operators(
    graph: Graph, changes: Mapping[int, Operator], gone: Collection[int] = ()
) -> Graph:
    """Replace operators at some positions, and leave out the removed ones."""
    operators = tuple(
        changes.get(position, operator)
        for position, operator in enumerate(graph.operators)
        if position not in gone
    )
    return graph.replaced(operators=operators)


def in_one_run(graph: Graph, first: int, last: int) -> Graph:
    """The graph with what operator ``last`` needs of operator ``first``, one after the other.

    Operators between them that do not depend on ``first`` come before it.
    """
    made, before, after = set(graph.operators[first].outputs), list[Operator](), list[Operator]()
    for operator in graph.operators[first : last + 1]:
        depends = operator is graph.operators[first] or made & {*operator.inputs}
        (after if depends else before).append(operator)
        made.update(operator.outputs if depends else ())
    if not before:
        return graph
    operators = (*graph.operators[:first], *before, *after, *graph.operators[last + 1 :])
    return graph.replaced(operators=operators)
