"""What every kernel asks of an operator's operands: constants, bias, scales."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor
from utvm_deploy.kernels.contract.call import Argument, ConstantArgument, TensorArgument


def input_of(graph: Graph, operator: Operator, index: int) -> tuple[int, Tensor]:
    """A required input: its position in ``Graph.tensors``, and the tensor."""
    position = operator.inputs[index] if index < len(operator.inputs) else None
    if position is None:
        raise CompileError(f"{operator.kind} of {_label(graph, operator)} lacks input {index}")
    return position, graph.tensors[position]


def operand_of(position: int, tensor: Tensor) -> Argument:
    """The argument for an input that may be computed or constant."""
    if tensor.data is None:
        return TensorArgument(position)
    return ConstantArgument("operand", tensor.data)


def output_of(graph: Graph, operator: Operator) -> tuple[int, Tensor]:
    """The only output: its position in ``Graph.tensors``, and the tensor."""
    (position,) = operator.outputs
    return position, graph.tensors[position]


def quantization_of(tensor: Tensor) -> Quantization:
    """The quantization of a tensor that must have one."""
    if tensor.quantization is None:
        raise CompileError(f"tensor {tensor.name} has no quantization; convert the model to int8")
    return tensor.quantization


def ends_of(graph: Graph, operator: Operator) -> tuple[Quantization, Quantization]:
    """The quantizations of the first input and of the output."""
    source = quantization_of(input_of(graph, operator, 0)[1])
    return source, quantization_of(output_of(graph, operator)[1])


def constant_of(graph: Graph, operator: Operator, index: int) -> Array:
    """The data of an input that must be a constant."""
    _, tensor = input_of(graph, operator, index)
    if tensor.data is None:
        raise CompileError(
            f"{operator.kind} of {_label(graph, operator)} takes {tensor.name} as input {index}, "
            "which is computed; only constants are supported there"
        )
    return tensor.data


def bias_of(graph: Graph, operator: Operator, channels: int, position: int = 2) -> Array:
    """The bias at an input's position, zeros of int32 where the operator has none."""
    if len(operator.inputs) <= position or operator.inputs[position] is None:
        return np.zeros(channels, dtype=np.int32)
    return constant_of(graph, operator, position)


def effective_scales(graph: Graph, operator: Operator, channels: int) -> list[float]:
    """Per output channel: input scale * weight scale / output scale, in double precision."""
    source = quantization_of(input_of(graph, operator, 0)[1]).scale
    weights = quantization_of(input_of(graph, operator, 1)[1]).scales
    result = quantization_of(output_of(graph, operator)[1]).scale
    if len(weights) == 1:
        weights *= channels
    return [source * weight / result for weight in weights]


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


def _label(graph: Graph, operator: Operator) -> str:
    return graph.tensors[operator.outputs[0]].name
