"""Weights of a portable kernel: a table of bytes, or one of packed values that its loops unpack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te

#: The operators whose kernels unpack weights.
PACKED_OPERATORS = (
    *("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
)


def is_packed(dtype: str) -> bool:
    """Whether a byte has several values of this type."""
    return element_type(dtype).in_unit > 1


def packed_type(graph: Graph, operator: Operator) -> str:
    """The type of an operator's inputs that are packed; empty if none is."""
    types = (graph.tensors[one].dtype for one in operator.inputs if one is not None)
    return next(filter(is_packed, types), "")


def unpacked_graph(graph: Graph, operator: Operator) -> Graph:
    """The graph with int8 in place of the packed inputs of an operator."""
    tensors = list(graph.tensors)
    for one in operator.inputs:
        if one is not None and is_packed(tensors[one].dtype):
            tensors[one] = replace(tensors[one], dtype="int8")
    return replace(graph, tensors=tuple(tensors))


def graph_of_call(graph: Graph, operator: Operator, call: KernelCall) -> Graph:
    """The graph, with the weights of an operator as the tables of its call have them."""
    return unpacked_graph(graph, operator) if call.is_unpacked else graph


def weights_label(dtype: str) -> str:
    """Ends the name of a kernel with weights of this type."""
    return "" if dtype == "int8" else f"_{dtype}"


def weights_table(weights: Array, dtype: str) -> Array:
    """The table in flash of these weights: as they are, or packed as in a .tflite file."""
    if not is_packed(dtype):
        return weights
    return np.frombuffer(element_type(dtype).packed(weights), dtype=np.uint8)


def weights_of_kernel(shape: Sequence[int], dtype: str) -> tuple[Any, Callable[..., Any]]:
    """The parameter ``weights`` in te, and what gives the int32 at an index of ``shape``."""
    element = element_type(dtype)
    if not is_packed(dtype):
        table = te.placeholder(shape, dtype, "weights")
        return table, lambda *index: table[index].astype("int32")
    table = te.placeholder((element.size_bytes(math.prod(shape)),), "uint8", "weights")
    values, sign = 1 << element.bits, 1 << (element.bits - 1)

    def unpacked(*index: Any) -> Any:
        place: Any = 0
        for one, extent in zip(index, shape, strict=True):
            place = place * extent + one
        unit = table[place // element.in_unit].astype("int32")
        bits = unit >> (place % element.in_unit * element.bits)
        # The sign bit counts negatively.
        return ((bits & (values - 1)) ^ sign) - sign

    return table, unpacked
