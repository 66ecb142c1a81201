"""One operator of a .tflite file as a separate file, as it is or in float32.

In float32, its quantized tensors become the numbers that they mean. What the operator computes from
them is the same, except for the rounding of the quantized kernel. Only child processes load this.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array

#: The position of the bias of operators whose kernels take it in steps of both scales' product.
_BIAS = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), 2),
    **dict.fromkeys(("SVDF", "TRANSPOSE_CONV"), 3),
}
#: The positions of what is multiplied there.
_FACTORS = {"SVDF": (4, 2), "TRANSPOSE_CONV": (2, 1)}
#: The types of quantized activations.
STEPPED = (schema.INT8, schema.INT16, schema.UINT8)


@dataclass(frozen=True)
class Scaled:
    """How the integers of a tensor are meant: of all of them, or along an axis."""

    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int = 0

    def real(self, steps: Array) -> Array:
        """The numbers that integers mean."""
        scales, zeros = self.scales, self.zero_points
        if scales.size > 1:
            along = [-1 if axis == self.axis else 1 for axis in range(steps.ndim)]
            scales, zeros = scales.reshape(along), zeros.reshape(along)
        found: Array = ((steps.astype(np.int64) - zeros) * scales.astype(np.float64)).astype(
            np.float32
        )
        return found


@dataclass(frozen=True)
class SingleOperator:
    """An operator's file, and the numbers that its inputs and outputs have in the whole model."""

    data: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def scaled(tensor: Any, types: Sequence[int] = STEPPED) -> Scaled | None:
    """How a tensor of int8, int16 or uint8 is quantized; None if it is not."""
    params = tensor.quantization
    if tensor.type not in types or params is None or params.scale is None:
        return None
    scales = np.asarray(params.scale, np.float32)
    if not scales.size:
        return None
    zeros = np.asarray([0] if params.zeroPoint is None else params.zeroPoint, np.int64)
    return Scaled(scales, np.broadcast_to(zeros, scales.shape), params.quantizedDimension)


def single_operator(model: Any, position: int, *, in_float: bool) -> SingleOperator:
    """The operator at this position of a ``ModelT``.

    ValueError if it is wanted in float32, and no scale says what some of its tensors mean.
    """
    graph = model.subgraphs[0]
    operator = copy.copy(graph.operators[position])
    kind = schema.kind_of(model, operator)
    sources = schema.numbers(operator.inputs)
    made = copy.copy(model)
    made.operatorCodes = [model.operatorCodes[operator.opcodeIndex]]
    made.buffers, made.signatureDefs, made.metadata = model.buffers[:1], None, None
    made.subgraphs = [copy.copy(graph)]
    small = made.subgraphs[0]
    small.tensors, small.operators = [], [operator]
    if in_float:
        _check_scales(
            [graph.tensors[number] for number in (*sources, *operator.outputs) if number >= 0]
        )
    places: dict[int, int] = {}
    given = []
    for index, number in enumerate(sources):
        if number < 0 or number in places:
            continue
        places[number] = len(small.tensors)
        tensor = graph.tensors[number]
        data = schema.constant(model, tensor)
        if data is not None and in_float:
            data = _meant(model, kind, sources, index, data)
        if data is None and not tensor.isVariable:
            given.append(number)
        small.tensors.append(_tensor(made, tensor, data, in_float=in_float))
    outputs = schema.numbers(operator.outputs)
    first = len(small.tensors)
    for number in outputs:
        small.tensors.append(_tensor(made, graph.tensors[number], None, in_float=in_float))
    operator.opcodeIndex, operator.intermediates = 0, None
    operator.inputs = [places.get(number, -1) for number in sources]
    operator.outputs = small.outputs = [*range(first, len(small.tensors))]
    small.inputs = [places[number] for number in given]
    return SingleOperator(schema.model_bytes(made), tuple(given), tuple(outputs))


def _check_scales(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if tensor.type in STEPPED and scaled(tensor) is None:
            raise ValueError("a tensor has no scale")


def _meant(model: Any, kind: str, sources: Sequence[int], index: int, data: Array) -> Array:
    """The numbers that a constant operand means."""
    tensors = model.subgraphs[0].tensors
    if (meant := scaled(tensors[sources[index]])) is not None:
        return meant.real(data)
    if index == _BIAS.get(kind) and data.dtype.kind == "i":
        left, right = (scaled(tensors[sources[one]]) for one in _FACTORS.get(kind, (0, 1)))
        if left is not None and right is not None:
            scales = left.scales * right.scales
            return Scaled(scales, np.zeros(scales.shape, np.int64)).real(data)
    return data


def _tensor(model: Any, tensor: Any, data: Array | None, *, in_float: bool) -> Any:
    """A tensor of the new model, to which a constant's value is added."""
    made = copy.copy(tensor)
    made.buffer = 0
    if in_float:
        made.quantization = made.sparsity = None
        if scaled(tensor) is not None or (data is not None and data.dtype == np.float32):
            made.type = schema.FLOAT32
    if data is not None:
        schema.add_constant(model, made, data)
    return made
