"""Evaluates operators on constants, if they only move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from utvm_deploy.graph.attributes import Concatenation, Pad, Rearrange, Reshape
from utvm_deploy.graph.model import Array, Graph, Operator


def evaluate(graph: Graph, operator: Operator, arrays: Sequence[Array]) -> Array | None:
    """The operator's output; None for an operator that does more than move elements."""
    a = operator.attributes
    if isinstance(a, Reshape):
        return arrays[0].reshape(graph.tensors[operator.outputs[0]].shape)
    if isinstance(a, Rearrange):
        return rearranged(arrays[0], a)
    if isinstance(a, Concatenation):
        join = np.stack if a.stacks else np.concatenate
        joined: Array = join(list(arrays), axis=a.axis)
        return joined
    if isinstance(a, Pad):
        fill = np.array(fill_of(graph, operator), arrays[0].dtype)
        padded: Array = np.pad(arrays[0], a.paddings, constant_values=fill)
        return padded
    return None


def rearranged(array: Array, a: Rearrange) -> Array:
    """What REARRANGE makes of an array."""
    taken = array.reshape(a.view)
    for axis, indices in enumerate(a.indices):
        if indices != tuple(range(a.view[axis])):
            taken = np.take(taken, indices, axis=axis)
    moved: Array = taken.transpose(a.order).reshape(a.shape)
    return moved


def fill_of(graph: Graph, operator: Operator) -> float:
    """The value that PAD and PADV2 put around their input: an int, or a float for float32."""
    a = operator.attributes
    assert isinstance(a, Pad)
    if a.value is not None:
        return a.value
    source = operator.inputs[0]
    assert source is not None
    if graph.tensors[source].dtype == "float32":
        return 0.0
    quantization = graph.tensors[source].quantization
    assert quantization is not None, "check_graph demands it"
    return quantization.zero_point


def moves_nothing(a: Rearrange) -> bool:
    """Whether the output's elements lie as the input's do."""
    if any(i != tuple(range(d)) for d, i in zip(a.view, a.indices, strict=True)):
        return False
    moving = [axis for axis in a.order if a.view[axis] != 1]
    return moving == sorted(moving) and math.prod(a.view) == math.prod(a.shape)
