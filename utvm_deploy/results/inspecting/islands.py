"""The float islands of a model: operators of float32 that are connected, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.graph.attributes import OfOneType, Pool
from utvm_deploy.graph.check import works_in_float
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Graph, Operator

_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class FloatIsland:
    """Operators that compute in float32, connected by activations of float32."""

    operators: tuple[int, ...]  # positions in the file
    conversions: tuple[int, ...]  # the QUANTIZE and DEQUANTIZE operators at its ends
    macs: int
    operations: int


def float_islands(graph: Graph) -> tuple[FloatIsland, ...]:
    """All islands, in the order of their first operators; one if the whole model is float32."""
    members = [o for o in graph.operators if works_in_float(graph, o)]
    first = {id(operator): position for position, operator in enumerate(members)}
    touching: dict[int, list[Operator]] = {}
    for operator in members:
        for number in _float_activations(graph, operator):
            touching.setdefault(number, []).append(operator)
    # Each operator takes the least number of those that it shares a tensor with.
    changed = True
    while changed:
        changed = False
        for group in touching.values():
            least = min(first[id(operator)] for operator in group)
            for operator in group:
                changed |= first[id(operator)] != least
                first[id(operator)] = least
    islands: dict[int, list[Operator]] = {}
    for operator in members:
        islands.setdefault(first[id(operator)], []).append(operator)
    return tuple(_island(graph, islands[key]) for key in sorted(islands))


def float_operations(graph: Graph, operator: Operator) -> int:
    """Arithmetic operations of a float32 operator; what only moves data has none.

    A multiply-accumulate counts as two. A pool has one for each position of a window. Of other
    operators, each element counts once, whether it takes a sum or a function such as exp.
    """
    if not works_in_float(graph, operator) or isinstance(operator.attributes, OfOneType):
        return 0
    products = macs(graph, operator)
    if products:
        return 2 * products
    if isinstance(operator.attributes, Pool):
        outputs = math.prod(graph.tensors[operator.outputs[0]].shape)
        return outputs * math.prod(operator.attributes.window)
    numbers = (*operator.inputs, *operator.outputs)
    return max(math.prod(graph.tensors[n].shape) for n in numbers if n is not None)


def island_numbers(islands: tuple[FloatIsland, ...]) -> Mapping[int, int]:
    """Position of an operator in the file -> the number of its island, from 1 on."""
    return {
        position: number
        for number, island in enumerate(islands, 1)
        for position in island.operators
    }


def _float_activations(graph: Graph, operator: Operator) -> list[int]:
    """The float32 tensors of an operator that are not constant."""
    numbers = [n for n in (*operator.inputs, *operator.outputs) if n is not None]
    tensors = graph.tensors
    return [n for n in numbers if tensors[n].dtype == "float32" and tensors[n].data is None]


def _island(graph: Graph, operators: list[Operator]) -> FloatIsland:
    shared = {number for one in operators for number in _float_activations(graph, one)}
    ends = (
        one
        for one in graph.operators
        if one.kind in _CONVERSIONS and shared & {*one.inputs, *one.outputs}
    )
    return FloatIsland(
        operators=tuple(one.sources[0] for one in operators),
        conversions=tuple(one.sources[0] for one in ends),
        macs=sum(macs(graph, one) for one in operators),
        operations=sum(float_operations(graph, one) for one in operators),
    )
