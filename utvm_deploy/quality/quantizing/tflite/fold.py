"""Joins operators of a float .tflite file that was converted from an ONNX or a PyTorch model.

layer, MUL c, ADD d -> layer      for a convolution or dense layer, and constants of each channel,
                                  as a batch normalization leaves them; float32 rounds otherwise
MUL c, ADD d, layers -> layers    for dense layers that alone read it, as behind a LayerNorm
MAXIMUM x, 0        -> RELU x     of the same values; or part of the operator before

Each operator that goes is one rounding less in an integer model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array

#: Kind -> dimension of the weights that counts output channels.
_CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
#: Kinds whose kernels can clamp their result.
_CLAMPING = (*_CHANNELS, "ADD", "SUB", "MUL", "TRANSPOSE_CONV")
# The schema's numbers of fused activations.
_NONE, _RELU = 0, 1


def folded(data: bytes) -> bytes:
    """The file with fewer operators, whose outputs differ by float32's rounding at most."""
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    once = _read_once(graph)
    makers: dict[int, Any] = {}  # of tensors that one operator reads, and nothing else
    kept = []
    for operator in graph.operators:
        source, known = _operands(model, operator)
        before = makers.get(source)
        layer = _behind_reshape(model, before, makers)
        if layer is not None and known is not None and _join(model, layer, operator, known):
            assert before is not None
            before.outputs = operator.outputs
            operator = before
        else:
            if known is not None and _is_relu(model, operator, known):
                operator.opcodeIndex = schema.code_index(model, "RELU", 1)
                # RELU has no options: 0 is the schema's NONE.
                operator.builtinOptionsType, operator.builtinOptions = 0, None
                operator.inputs = [source]
            kept.append(operator)
        outputs = schema.numbers(operator.outputs)
        if len(outputs) == 1 and outputs[0] in once:
            makers[outputs[0]] = operator
    graph.operators = kept
    for operator in kept[::-1]:
        if _give_to_readers(model, operator):
            graph.operators = [one for one in graph.operators if one is not operator]
    return schema.model_bytes(model)


def _give_to_readers(model: Any, operator: Any) -> bool:
    """Let the dense layers that read a MUL or an ADD compute it; whether they can."""
    graph = model.subgraphs[0]
    source, known = _operands(model, operator)
    kind = schema.kind_of(model, operator)
    if (
        known is None
        or kind not in ("MUL", "ADD")
        or operator.builtinOptions.fusedActivationFunction
    ):
        return False
    made = int(operator.outputs[0])
    shapes = [schema.numbers(graph.tensors[number].shape) for number in (source, made)]
    readers = [one for one in graph.operators if made in schema.numbers(one.inputs)]
    channels = shapes[0][-1] if shapes[0] else 0
    is_by_channel = known.size in (1, channels) and known.shape[-1] == known.size
    if shapes[0] != shapes[1] or made in schema.numbers(graph.outputs) or not is_by_channel:
        return False
    if not readers or not all(_is_dense(model, one, made, channels) for one in readers):
        return False
    constants = [_constants_with(model, one, kind, known) for one in readers]
    if not all(np.isfinite(one).all() for pair in constants for one in pair):
        return False
    for reader, (weights, bias) in zip(readers, constants, strict=True):
        reader.inputs[0] = source
        _give(model, reader, weights, bias)
    return True


def _is_dense(model: Any, operator: Any, source: int, channels: int) -> bool:
    numbers = schema.numbers(operator.inputs)
    if schema.kind_of(model, operator) != "FULLY_CONNECTED" or numbers[0] != source:
        return False
    tensors = model.subgraphs[0].tensors
    weights = schema.constant(model, tensors[numbers[1]])
    bias = (
        len(numbers) < 3
        or numbers[2] < 0
        or schema.constant(model, tensors[numbers[2]]) is not None
    )
    return (
        bias
        and weights is not None
        and weights.dtype == np.float32
        and weights.shape[1] == channels
    )


def _constants_with(model: Any, layer: Any, kind: str, known: Array) -> tuple[Array, Array]:
    """The weights and the bias of a dense layer that also multiplies its input, or adds to it."""
    tensors = model.subgraphs[0].tensors
    _, number, *rest = schema.numbers(layer.inputs)
    weights: Any = schema.constant(model, tensors[number])
    bias: Any = np.zeros(len(weights), np.float32)
    if rest and rest[0] >= 0:
        bias = schema.constant(model, tensors[rest[0]])
    by_channel = np.broadcast_to(known.reshape(-1), (weights.shape[1],))
    if kind == "ADD":
        return weights, bias + weights @ by_channel
    return weights * by_channel, bias


def _read_once(graph: Any) -> set[int]:
    """The tensors that one operator reads once, without the outputs of the model."""
    read = [n for operator in graph.operators for n in schema.numbers(operator.inputs)]
    read += 2 * schema.numbers(graph.outputs)
    return {number for number in read if read.count(number) == 1}


def _operands(model: Any, operator: Any) -> tuple[int, Array | None]:
    """The computed operand of an operator with two, and the constant one; else -1 and None.

    That of a RELU is the 0 with which it compares.
    """
    numbers = schema.numbers(operator.inputs)
    if schema.kind_of(model, operator) == "RELU":
        return numbers[0], np.zeros(1, np.float32)
    if schema.kind_of(model, operator) not in ("MUL", "ADD", "MAXIMUM") or len(numbers) != 2:
        return -1, None
    tensors = model.subgraphs[0].tensors
    for source, other in (numbers, numbers[::-1]):
        is_float = tensors[other].type == schema.FLOAT32
        known = schema.constant(model, tensors[other]) if is_float else None
        if known is not None and schema.constant(model, tensors[source]) is None:
            return source, np.atleast_1d(known)
    return -1, None


def _behind_reshape(model: Any, operator: Any, makers: Mapping[int, Any]) -> Any:
    """What made the input of a RESHAPE, as behind a convolution of one dimension, or itself."""
    if operator is None or schema.kind_of(model, operator) != "RESHAPE":
        return operator
    return makers.get(int(operator.inputs[0]))


def _join(model: Any, before: Any, operator: Any, known: Array) -> bool:
    """Let the operator before make the result of this one, if it can; whether it can."""
    options = before.builtinOptions
    if getattr(options, "fusedActivationFunction", None) != _NONE:
        return False
    if not _keeps_channels(model, before, operator):
        return False
    kind = schema.kind_of(model, operator)
    if kind in ("MAXIMUM", "RELU"):
        if schema.kind_of(model, before) not in _CLAMPING or np.any(known):
            return False
        options.fusedActivationFunction = _RELU
    else:
        if not _fold(model, before, kind, known):
            return False
        options.fusedActivationFunction = operator.builtinOptions.fusedActivationFunction
    return True


def _keeps_channels(model: Any, before: Any, operator: Any) -> bool:
    """Whether both results have equally many elements and channels."""
    tensors = model.subgraphs[0].tensors
    one, other = (schema.numbers(tensors[each.outputs[0]].shape) for each in (before, operator))
    return math.prod(one) == math.prod(other) and one[-1:] == other[-1:]


def _fold(model: Any, layer: Any, kind: str, known: Array) -> bool:
    """Multiply the weights and the bias by a constant of each channel, or add it to the bias."""
    axis = _CHANNELS.get(schema.kind_of(model, layer))
    numbers = schema.numbers(layer.inputs)
    if axis is None or len(numbers) < 2 or known.size not in (1, known.shape[-1]):
        return False
    tensors = model.subgraphs[0].tensors
    weights = schema.constant(model, tensors[numbers[1]])
    if weights is None or tensors[numbers[1]].type != schema.FLOAT32:
        return False
    channels = weights.shape[axis]
    bias: Array | None = np.zeros(channels, np.float32)
    if len(numbers) > 2 and numbers[2] >= 0:
        bias = schema.constant(model, tensors[numbers[2]])
    if bias is None or known.size not in (1, channels):
        return False
    by_channel: Any = np.broadcast_to(known.reshape(-1), (channels,))
    if kind == "ADD":
        return _give(model, layer, weights, bias + by_channel)
    shape = [channels if place == axis else 1 for place in range(weights.ndim)]
    return _give(model, layer, weights * by_channel.reshape(shape), bias * by_channel)


def _give(model: Any, layer: Any, weights: Array, bias: Array) -> bool:
    """Give a layer new constants, for others may read the old ones; False if one is infinite."""
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        return False
    name = schema.name_of(model, layer.outputs[0])
    layer.inputs = [
        int(layer.inputs[0]),
        schema.new_constant(model, f"{name}/weights", weights.astype(np.float32)),
        schema.new_constant(model, f"{name}/bias", bias.astype(np.float32)),
    ]
    return True


def _is_relu(model: Any, operator: Any, known: Array) -> bool:
    is_zero = schema.kind_of(model, operator) == "MAXIMUM" and not np.any(known)
    # A broadcast of the computed operand would be lost.
    source, _ = _operands(model, operator)
    tensors = model.subgraphs[0].tensors
    shapes = [schema.numbers(tensors[n].shape) for n in (source, int(operator.outputs[0]))]
    return is_zero and shapes[0] == shapes[1]
