"""Which inputs of a model say places, such as a token in a table or a position in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, Gather, UpdateSlice
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.rewrite import consumers

#: Operators that hand integers on as they are.
_HANDING = ("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE")


def greatest_places(graph: Graph) -> Mapping[int, int]:
    """An input tensor that says places -> the greatest that lies within all that is asked there.

    The least is 0. Elements that all readers compute with, or that say where a slice of several
    dimensions begins, are no such places.
    """
    read = consumers(graph)

    def limits(tensor: int) -> Iterator[int]:
        for position in read.get(tensor, ()):
            operator = graph.operators[position]
            if isinstance(operator.attributes, Gather) and operator.inputs[1] == tensor:
                assert operator.inputs[0] is not None
                shape = graph.tensors[operator.inputs[0]].shape
                yield shape[operator.attributes.axis] - 1
            elif isinstance(operator.attributes, Concatenation):
                yield from _of_slices(graph, operator, tensor, read)
            elif operator.kind in _HANDING:
                yield from limits(operator.outputs[0])
            elif operator.kind == "ADD":
                yield from _of_sum(graph, operator, list(limits(operator.outputs[0])))

    found = {}
    for number in graph.inputs:
        known = list(limits(number)) if graph.tensors[number].dtype in ("int32", "int64") else []
        if known:
            found[number] = max(min(known), 0)
    return found


def _of_slices(
    graph: Graph, joined: Operator, tensor: int, read: Mapping[int, list[int]]
) -> Iterator[int]:
    """The greatest places along one dimension, of slices whose beginning ``joined`` says."""
    ahead = joined.inputs[: joined.inputs.index(tensor)]
    axis = sum(graph.tensors[one].shape[0] for one in ahead if one is not None)
    for position in read.get(joined.outputs[0], ()):
        operator = graph.operators[position]
        if isinstance(operator.attributes, UpdateSlice):
            whole, part = (graph.tensors[i].shape for i in operator.inputs[:2] if i is not None)
            yield whole[axis] - part[axis]


def _of_sum(graph: Graph, operator: Operator, limits: list[int]) -> Iterator[int]:
    """The same before constants are added."""
    constants = [graph.tensors[i].data for i in operator.inputs if i is not None]
    added = max(int(np.max(one)) for one in constants if one is not None) if any(
        one is not None for one in constants
    ) else 0
    yield from (limit - added for limit in limits)
