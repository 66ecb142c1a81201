"""Importing what keeps a state between runs."""

from __future__ import annotations

import math

from utvm_deploy.frontend.operands import (
    bias_of,
    clamp_of,
    made,
    quantized,
    scale_of,
    zero_point_of,
)
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import Lstm, Svdf
from utvm_deploy.graph.model import Operator, Tensor

_TANH = 4  # the schema's number of that activation
_INTERMEDIATES = 5
_HALF = 0.5
# What the reference's fixed-point tanh has integer bits for.
_CELL_EXPONENTS = range(-15, -8)
# Optional inputs.
_BESIDE = {
    "a peephole": (9, 10, 11),
    "a projection": (16, 17),
    "layer normalization": (20, 21, 22, 23),
}


def import_svdf(op: SourceOperator) -> Operator:
    """SVDF with int8 weights for features, int16 for time, and a state of int16."""
    x, out = quantized(op, op.input(0), 2), quantized(op, op.output(), 2)
    features, times = _constant(op, 1, "int8"), _constant(op, 2, "int16")
    state = quantized(op, op.input(4), 2, ("int16",))
    rank = op.positive("Rank")
    filters, units = features.shape[0], features.shape[0] // rank
    fits = (
        filters % rank == 0
        and features.shape[1] == x.shape[1]
        and times.shape[0] == filters
        and state.shape == (x.shape[0], filters * times.shape[1])
        and out.shape == (x.shape[0], units)
    )
    if not fits:
        raise op.damaged(
            f"weights {features.shape} and {times.shape} of rank {rank} and a state {state.shape} "
            f"do not make {out.shape} of {x.shape}"
        )
    # The reference has no other activation for integers.
    if clamp_of(op, out) != clamp_of(op, out, 1):
        raise op.unsupported("its fused activation is not RELU, which the reference demands")
    bias = bias_of(op, units, position=3)
    inputs = (*op.inputs[:3], bias, op.inputs[4])
    return made(op, inputs, Svdf(rank))


def import_lstm(op: SourceOperator) -> Operator:
    """UNIDIRECTIONAL_SEQUENCE_LSTM with four gates and nothing beside them."""
    x, out = quantized(op, op.input(0), 3), quantized(op, op.output(), 3)
    beside = [what for what, inputs in _BESIDE.items() if any(op.has_input(i) for i in inputs)]
    if beside:
        raise op.unsupported(f"it has {' and '.join(beside)}; only the four gates are supported")
    if op.integer("FusedActivationFunction") != _TANH:
        raise op.unsupported("its activation is not TANH")
    by_input = [_weights(op, i) for i in range(1, 5)]
    by_hidden = [_weights(op, i) for i in range(5, 9)]
    cells = by_input[0].shape[0]
    biases = [bias_of(op, cells, position=i) for i in range(12, 16)]
    if any(bias is None for bias in biases):
        raise op.damaged("it lacks the bias of a gate")
    hidden, cell = quantized(op, op.input(18), 2), quantized(op, op.input(19), 2, ("int16",))
    time_major = bool(op.option("TimeMajor"))
    batch = x.shape[1] if time_major else x.shape[0]
    fits = (
        all(weights.shape == (cells, x.shape[2]) for weights in by_input)
        and all(weights.shape == (cells, cells) for weights in by_hidden)
        and hidden.shape == cell.shape == (batch, cells)
        and out.shape == (*x.shape[:2], cells)
    )
    if not fits:
        raise op.damaged(f"its weights and states do not make {out.shape} of {x.shape}")
    fraction, exponent = math.frexp(scale_of(cell))
    if fraction != _HALF or zero_point_of(cell) != 0 or exponent - 1 not in _CELL_EXPONENTS:
        raise op.unsupported(
            f"its cell state has scale {scale_of(cell)} and zero point {zero_point_of(cell)}; "
            "only scales of 2**n, from 2**-15 to 2**-9, and 0 are supported"
        )
    if len(op.intermediates) != _INTERMEDIATES:
        raise op.damaged(f"it has {len(op.intermediates)} intermediates, not {_INTERMEDIATES}")
    inside = op.tensors[op.intermediates[-1]]
    quantization = inside.quantization
    if quantization is None or quantization.axis is not None:
        raise op.damaged(f"its hidden state '{inside.name}' has no scale and zero point")
    clip = float(op.option("CellClip"))
    if not (math.isfinite(clip) and clip >= 0):
        raise op.damaged(f"its cell clip is {clip}")
    attributes = Lstm(quantization.scale, quantization.zero_point, clip, time_major)
    inputs = (*op.inputs[:9], *biases, op.inputs[18], op.inputs[19])
    return made(op, inputs, attributes)


def _weights(op: SourceOperator, position: int) -> Tensor:
    weights = _constant(op, position, "int8")
    if zero_point_of(weights) != 0:
        raise op.unsupported(f"weights '{weights.name}' have a zero point other than 0")
    return weights


def _constant(op: SourceOperator, position: int, dtype: str) -> Tensor:
    tensor = quantized(op, op.input(position), 2, (dtype,))
    if tensor.data is None:
        raise op.unsupported(f"weights '{tensor.name}' are computed; they must be constant")
    assert scale_of(tensor) > 0
    return tensor
