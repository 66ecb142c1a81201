"""Importing what keeps a state between runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    COMPUTED,
    INT8,
    MOVED_OR_TRUE,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.lstm_inputs import (
    LstmInputs,
    LstmTypes,
    lstm_inputs,
    lstm_states,
)
from utvm_deploy.frontend.operators.operands import (
    bias_of,
    clamp_of,
    made,
    movable,
    quantized,
    scale_of,
    zero_point_of,
)
from utvm_deploy.graph.attributes import Lstm, QuantizedLstm, Svdf, Variable
from utvm_deploy.graph.model import Operator, Tensor

_INTERMEDIATES = 5
_HALF = 0.5
# What the reference's fixed-point tanh has integer bits for.
_CELL_EXPONENTS = range(-15, -8)
_GATES = 4
#: Gates are fixed-point numbers with three integer bits, unless they are normalized.
_GATE_SCALE = 2.0**-12
_MOST_CELLS = 65535
#: The input, weights and biases of four gates, and the states.
_PLAIN_INPUTS = 15


def import_svdf(op: SourceOperator) -> Operator:
    """SVDF with int8 weights for features; those for time and the state are both int16 or int8."""
    x, out = quantized(op, op.input(0), 2), quantized(op, op.output(), 2)
    state = quantized(op, op.input(4), 2, COMPUTED)
    features, times = _constant(op, 1, "int8"), _constant(op, 2, state.dtype)
    rank = op.positive("Rank")
    check_svdf(op, rank, (x, features, times, state, out))
    # The reference has no other activation for integers.
    if clamp_of(op, out) != clamp_of(op, out, 1):
        raise op.unsupported("its fused activation is not RELU, which the reference demands")
    bias = bias_of(op, out.shape[1], position=3)
    inputs = (*op.inputs[:3], bias, op.inputs[4])
    return made(op, inputs, Svdf(rank))


def check_svdf(op: SourceOperator, rank: int, operands: Sequence[Tensor]) -> None:
    """Check that input, both weights, state and output of an SVDF fit together."""
    x, features, times, state, out = (tensor.shape for tensor in operands)
    filters = features[0]
    fits = (
        filters % rank == 0
        and features[1] == x[1]
        and times[0] == filters
        and state == (x[0], filters * times[1])
        and out == (x[0], filters // rank)
    )
    if not fits:
        raise op.damaged(
            f"weights {features} and {times} of rank {rank} and a state {state} do not make {out} "
            f"of {x}"
        )


def import_lstm(op: SourceOperator) -> Operator:
    """UNIDIRECTIONAL_SEQUENCE_LSTM with its four gates and, of int8, all optional parts."""
    if op.input(0).dtype == "int16":
        return _import_wide_lstm(op)
    out = quantized(op, op.output(), 3)
    quantized(op, op.input(0), 3)
    hidden, cell = lstm_states(op)
    quantized(op, hidden, 2)
    quantized(op, cell, 2, ("int16",))
    found = lstm_inputs(op, LstmTypes(_weights, _vector, "int32"))
    if found.has_peepholes and hidden.shape != cell.shape:
        raise op.unsupported(
            f"it has peepholes and projects {cell.shape[1]} cells to {hidden.shape[1]}, where the "
            "reference looks at wrong cells"
        )
    if cell.shape[1] > _MOST_CELLS:
        raise op.unsupported(f"it has {cell.shape[1]:,} cells; {_MOST_CELLS:,} are supported")
    _check_cell(op, cell)
    return made(op, found.inputs, _quantized_lstm(op, out, found))


def _import_wide_lstm(op: SourceOperator) -> Operator:
    """An LSTM of int16 by int8 weights, as TFLite Micro has it."""
    hidden, cell = lstm_states(op)
    operands = ((op.input(0), 3), (op.output(), 3), (hidden, 2), (cell, 2))
    for tensor, rank in operands:
        if zero_point_of(quantized(op, tensor, rank, ("int16",))) != 0:
            raise op.unsupported(f"'{tensor.name}' of int16 has a zero point other than 0")
    found = lstm_inputs(op, LstmTypes(partial(_weights, types=("int8",)), _vector, "int64"))
    if None in found.inputs[:_PLAIN_INPUTS] or any(
        (found.has_peepholes, found.has_norms, found.has_projection)
    ):
        raise op.unsupported(
            "it computes on int16, and has coupled gates, peepholes, norms or a projection, which "
            "TFLite Micro's kernel lacks"
        )
    _check_cell(op, cell)
    return made(op, found.inputs, Lstm(found.time_major, found.cell_clip, 0.0))


def import_variable(op: SourceOperator) -> Operator:
    """READ_VARIABLE and ASSIGN_VARIABLE, as ``variables`` left them: of one tensor to another."""
    movable(op, op.input(0))
    movable(op, op.output())
    return made(op, op.inputs, Variable())


def _check_cell(op: SourceOperator, cell: Tensor) -> None:
    fraction, exponent = math.frexp(scale_of(cell))
    if fraction != _HALF or zero_point_of(cell) != 0 or exponent - 1 not in _CELL_EXPONENTS:
        raise op.unsupported(
            f"its cell state has scale {scale_of(cell)} and zero point {zero_point_of(cell)}; "
            "only scales of 2**n, from 2**-15 to 2**-9, and 0 are supported"
        )


def _quantized_lstm(op: SourceOperator, out: Tensor, found: LstmInputs) -> QuantizedLstm:
    """The attributes, with what the intermediates say."""
    if len(op.intermediates) != _INTERMEDIATES:
        raise op.damaged(f"it has {len(op.intermediates)} intermediates, not {_INTERMEDIATES}")
    inside = [op.tensors[number] for number in op.intermediates]
    # Those of the gates count only where they are normalized.
    for tensor in inside if found.has_norms else inside[-1:]:
        if tensor.quantization is None or tensor.quantization.axis is not None:
            raise op.damaged(f"its inner tensor '{tensor.name}' has no scale and zero point")
    scales = [_GATE_SCALE] * _GATES
    if found.has_norms:
        scales = [scale_of(tensor) for tensor in inside[:_GATES]]
    return QuantizedLstm(
        found.time_major,
        found.cell_clip,
        found.projection_clip,
        scale_of(inside[-1]),
        zero_point_of(inside[-1]),
        scale_of(out),
        (scales[0], scales[1], scales[2], scales[3]),
    )


def _vector(op: SourceOperator, position: int) -> Tensor:
    tensor = quantized(op, op.input(position), 1, ("int16",))
    if tensor.data is None or zero_point_of(tensor) != 0:
        raise op.unsupported(f"'{tensor.name}' must be constant, with the zero point 0")
    return tensor


def _weights(op: SourceOperator, position: int, types: Sequence[str] = ("int8", "int4")) -> Tensor:
    weights = _constant(op, position, *types)
    if zero_point_of(weights) != 0:
        raise op.unsupported(f"weights '{weights.name}' have a zero point other than 0")
    return weights


def _constant(op: SourceOperator, position: int, *types: str) -> Tensor:
    tensor = quantized(op, op.input(position), 2, types)
    if tensor.data is None:
        raise op.unsupported(f"weights '{tensor.name}' are computed; they must be constant")
    assert scale_of(tensor) > 0
    return tensor


_ONE_FORM = "always one type and shape"
#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "ASSIGN_VARIABLE": SupportedOperator(
        import_variable, MOVED_OR_TRUE, f"of a VAR_HANDLE; {_ONE_FORM}"
    ),
    "READ_VARIABLE": SupportedOperator(
        import_variable,
        MOVED_OR_TRUE,
        f"of a VAR_HANDLE; {_ONE_FORM}; CALL_ONCE must have assigned a constant, unless the model "
        "has assigned something before",
    ),
    "SVDF": SupportedOperator(
        import_svdf,
        INT8,
        "int8 weights; state and weights over time both int16 or int8, as in TFLite Micro; fused "
        "RELU",
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SupportedOperator(
        import_lstm,
        COMPUTED,
        "cell state int16 of scale 2**n. Of int16: int8 weights and four gates alone. Of int8: "
        "weights of int8 or int4, with or without coupled gates, projection, layer "
        "normalization, and peepholes if outputs are as many as cells",
    ),
}
