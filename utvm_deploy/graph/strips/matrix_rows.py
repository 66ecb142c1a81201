"""Which operators can be computed row by row of their matrices, such as those of an attention.

All dimensions of a tensor but the last one count rows, and its last two dimensions are a matrix. A
product of two matrices reads the same rows of its left side, and all rows of its right side. So
attention never needs more of its scores than some rows of one matrix.
"""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.graph.attributes import (
    BatchMatmul,
    Boolean,
    Concatenation,
    FullyConnected,
    Gelu,
    LogSoftmax,
    Lookup,
    Mean,
    Reshape,
    Softmax,
    Sum,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.rewrite import in_one_run
from utvm_deploy.graph.strips.image_rows import BY_ELEMENT


def rows_of(tensor: Tensor) -> int:
    """How many rows all matrices of a tensor have together."""
    return math.prod(tensor.shape[:-1])


def attention_in_one_run(graph: Graph) -> Graph:
    """The graph with nothing between the operators of an attention.

    An attention begins with a product of two computed matrices, and ends with the next one of its
    rows. A file may compute the right side of the second one, V, in between.
    """
    position = 0
    while position < len(graph.operators):
        made = set[int]()
        for last in range(position, len(graph.operators)):
            operator = graph.operators[last]
            is_product = isinstance(operator.attributes, BatchMatmul)
            if last == position:
                if not is_product or not is_by_rows(graph, operator):
                    break
            elif not made & {*operator.inputs}:
                continue
            elif not is_by_rows(graph, operator):
                break
            made.update(operator.outputs)
            if last > position and is_product:
                graph = in_one_run(graph, position, last)
                position = last
                break
        position += 1
    return graph


def strip_shape(tensor: Tensor, rows: int) -> tuple[int, ...]:
    """The shape of a number of ``rows`` of a tensor, as one matrix."""
    return (*(1 for _ in tensor.shape[:-2]), rows, tensor.shape[-1])


def is_by_rows(graph: Graph, operator: Operator) -> bool:
    """Whether some rows of a matrix can be computed without its other rows."""
    a, number = operator.attributes, operator.inputs[0] if operator.inputs else None
    if len(operator.outputs) != 1 or number is None:
        return False
    source, output = graph.tensors[number], graph.tensors[operator.outputs[0]]
    if min(len(source.shape), len(output.shape)) < 2 or not math.prod(output.shape):
        return False
    if isinstance(a, BatchMatmul):
        return not a.left_turned
    if isinstance(a, FullyConnected):
        is_constant = graph.tensors[operator.inputs[1] or 0].data is not None
        return is_constant and rows_of(source) == rows_of(output)
    last = len(output.shape) - 1
    if isinstance(a, Mean | Sum):
        return a.axes == (last,) and len(source.shape) == len(output.shape)
    if isinstance(a, Concatenation | Lookup):
        return a.axis == last and source.shape[:-1] == output.shape[:-1]
    if isinstance(a, Reshape):
        return source.shape[-1] == output.shape[-1]
    # The condition of SELECT may be one for each row.
    ranks = {len(graph.tensors[one].shape) for one in operator.inputs if one is not None}
    if operator.kind == "SELECT" and len(ranks) > 1:
        return False
    return isinstance(a, (*BY_ELEMENT, Boolean, Gelu, LogSoftmax, Softmax))


def rows_read(
    graph: Graph, operator: Operator, place: int, first: int, end: int
) -> tuple[int, int] | None:
    """The rows of an input that are read for rows ``first`` to ``end`` of one matrix of the output.

    None: it has no rows, as weights. ``place`` is the position of the input.
    """
    a, number = operator.attributes, operator.inputs[place]
    if number is None or (place > 0 and isinstance(a, FullyConnected | Lookup)):
        return None
    shape, output = graph.tensors[number].shape, graph.tensors[operator.outputs[0]].shape
    if len(shape) >= 2 and follows(graph, operator, place):
        return first, end
    if math.prod(shape[:-1]) == 1:
        return None
    # A matrix of fewer, which are broadcast.
    *outer, rows, _ = shape
    index = np.unravel_index(first // output[-2], output[:-2] or (1,))
    index = index[len(index) - len(outer) :]
    matrix = 0
    for extent, position in zip(outer, index, strict=True):
        matrix = matrix * extent + (int(position) if extent > 1 else 0)
    begin, is_right_side = matrix * rows, place > 0 and isinstance(a, BatchMatmul)
    if is_right_side or rows == 1:
        return begin, begin + rows
    begin += first % rows
    return begin, begin + end - first


def follows(graph: Graph, operator: Operator, place: int) -> bool:
    """Whether an operator reads as many rows of an input as it makes: the same ones."""
    if place > 0 and isinstance(operator.attributes, BatchMatmul | FullyConnected | Lookup):
        return False
    number = operator.inputs[place]
    if number is None:
        return False
    return rows_of(graph.tensors[number]) == rows_of(graph.tensors[operator.outputs[0]])


def reads_turned(graph: Graph, operator: Operator) -> bool:
    """Whether the kernel of a product turns its right side first, as that of int8 does.

    Strips of one matrix read the same right side again and again.
    """
    a, number = operator.attributes, operator.inputs[-1]
    if not isinstance(a, BatchMatmul) or number is None:
        return False
    right = graph.tensors[number]
    return not a.right_turned and right.dtype == "int8" and right.data is None
