"""What kernels ask of an operator's tensors."""

from __future__ import annotations

import math

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor


def quantization_of(tensor: Tensor) -> Quantization:
    """The quantization of a tensor that must have one."""
    if tensor.quantization is None:
        raise CompileError(f"tensor {tensor.name} has no quantization; convert the model to int8")
    return tensor.quantization


def why_only_generic(graph: Graph, operator: Operator) -> str:
    """Why only the generic kernels can do an operator; empty where other families may try.

    They count on int8 activations.
    """
    tensors = [graph.tensors[i] for i in (operator.inputs[0], operator.outputs[0]) if i is not None]
    for tensor in tensors:
        if tensor.dtype != "int8":
            return f"it works on {tensor.dtype}"
    return ""


def stored(dtype: str) -> str:
    """The type of which kernels have an element: booleans are bytes of 0 or 1."""
    return "uint8" if dtype == "bool" else dtype


def element_count(tensor: Tensor) -> int:
    """How many elements a tensor has."""
    return math.prod(tensor.shape)
