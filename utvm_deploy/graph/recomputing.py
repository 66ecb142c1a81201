"""Activations that gradients need: kept until then, or computed again from what is there.

    kept:        x ──▶ f ──▶ y ──▶ ... loss ...        y ──▶ gradient
    computed:    x ──▶ f ──▶ y ──▶ ... loss ...  x ──▶ f ──▶ y ──▶ gradient

The second operator is the first one again, on equal bytes, so it makes equal bytes (Chen and
others, "Training deep nets with sublinear memory cost", 2016).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import consumers, producers


@dataclass(frozen=True, eq=False)
class Kept:
    """An activation that is there between two operators, and that neither makes nor reads."""

    tensors: tuple[int, ...]  # that share its bytes; the first one has the operator
    size_bytes: int
    operator: Operator
    first: int  # the last operator of model and loss that reads it
    last: int  # the first operator of the gradients that does


def kept_activations(graph: Graph) -> list[Kept]:
    """What could be computed again for the gradients, in the order in which it is made."""
    made, read, end = producers(graph), consumers(graph), _end(graph)
    fixed = {*graph.outputs, *(left for _, left in graph.states)}
    groups: dict[int, list[int]] = {}
    root_of: dict[int | None, int] = {}
    for operator in graph.operators[:end]:
        for number in operator.outputs:
            is_view = operator.kind == "RESHAPE" and operator.inputs[0] in root_of
            root_of[number] = root_of[operator.inputs[0]] if is_view else number
            groups.setdefault(root_of[number], []).append(number)
    found = []
    for root, tensors in groups.items():
        uses = sorted(i for tensor in tensors for i in read.get(tensor, ()))
        later = [i for i in uses if i >= end]
        operator = graph.operators[made[root]]
        if later and not fixed & {*tensors, *operator.outputs}:
            first = max((i for i in uses if i < end), default=made[root])
            size = graph.tensors[root].size_bytes
            found.append(Kept(tuple(tensors), size, operator, first, later[0]))
    return found


def recomputed(graph: Graph, chosen: Collection[int]) -> Graph | None:
    """The graph that computes some activations again right before a gradient needs them.

    None if a weight that is needed for that has changed by then.
    """
    made, end = producers(graph), _end(graph)
    changed = {found: made[left] for found, left in graph.states if left in made}
    tensors, operators = list(graph.tensors), list[Operator]()
    copies: dict[int, int] = {}
    is_right = True

    def again(tensor: int | None, position: int) -> int | None:
        """The tensor, or the one that a second operator makes in front of ``position``."""
        nonlocal is_right
        if tensor not in chosen or tensor is None:
            return tensor
        if tensor not in copies:
            operator = graph.operators[made[tensor]]
            inputs = tuple(again(one, position) for one in operator.inputs)
            is_right &= all(changed.get(i, position) >= position for i in inputs if i is not None)
            for number in operator.outputs:
                copies[number] = len(tensors)
                tensors.append(replace(graph.tensors[number], source=None))
            outputs = tuple(copies[number] for number in operator.outputs)
            operators.append(replace(operator, inputs=inputs, outputs=outputs))
        return copies[tensor]

    for position, operator in enumerate(graph.operators):
        if position >= end:
            inputs = tuple(again(one, position) for one in operator.inputs)
            operator = replace(operator, inputs=inputs)
        operators.append(operator)
    if not is_right:
        return None
    return graph.replaced(tensors=tuple(tensors), operators=tuple(operators))


def _end(graph: Graph) -> int:
    """The position of the first operator of the gradients."""
    made = producers(graph)
    return 1 + max((made[one] for one in graph.outputs if one in made), default=-1)
