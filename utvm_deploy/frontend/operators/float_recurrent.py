"""Importing operators of float32 that keep a state between runs."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import SupportedOperator
from utvm_deploy.frontend.operators.float_operands import (
    float_bias_of,
    float_weights_of,
    floats,
    limits_of,
)
from utvm_deploy.frontend.operators.lstm_inputs import LstmTypes, lstm_inputs, lstm_states
from utvm_deploy.frontend.operators.operands import made
from utvm_deploy.frontend.operators.recurrent import check_svdf
from utvm_deploy.graph.attributes import Lstm, Svdf
from utvm_deploy.graph.model import Operator, Tensor

_NONE = 0  # the schema's number of no activation


def import_svdf(op: SourceOperator) -> Operator:
    """SVDF with weights and a state of float32."""
    x, out, state = op.input(0), op.output(), op.input(4)
    floats(op, x, out, state, rank=2)
    features, times = (float_weights_of(op, 2, position) for position in (1, 2))
    rank = op.positive("Rank")
    check_svdf(op, rank, (x, features, times, state, out))
    bias = float_bias_of(op, out.shape[1], 3)
    is_limited = op.integer("FusedActivationFunction") != _NONE
    limits = limits_of(op) if is_limited else None
    return made(op, (*op.inputs[:3], bias, op.inputs[4]), Svdf(rank, limits))


def import_lstm(op: SourceOperator) -> Operator:
    """UNIDIRECTIONAL_SEQUENCE_LSTM with weights and states of float32."""
    floats(op, op.input(0), op.output(), rank=3)
    floats(op, *lstm_states(op), rank=2)
    found = lstm_inputs(op, LstmTypes(_matrix, _vector, "float32"))
    attributes = Lstm(found.time_major, found.cell_clip, found.projection_clip)
    return made(op, found.inputs, attributes)


def _matrix(op: SourceOperator, position: int) -> Tensor:
    return float_weights_of(op, 2, position)


def _vector(op: SourceOperator, position: int) -> Tensor:
    return float_weights_of(op, 1, position)


#: What this module imports.
FLOAT_OPERATORS: Mapping[str, SupportedOperator] = {
    "SVDF": SupportedOperator(
        import_svdf, ("float32",), "constant weights; fused NONE, RELU, RELU6 or RELU_N1_TO_1"
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SupportedOperator(
        import_lstm,
        ("float32",),
        "constant weights; fused TANH; with or without coupled gates, peepholes, projection and "
        "layer normalization",
    ),
}
