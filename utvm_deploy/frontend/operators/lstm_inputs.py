"""What LSTMs of int8 and of float32 have in common: which inputs there are, and their shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.operators.operands import bias_of
from utvm_deploy.graph.model import Tensor

_TANH = 4  # the schema's number of that activation
_GATES = 4
# Positions of inputs in the file. Those of weights and biases are the first gate's.
_X, _BY_INPUT, _BY_HIDDEN, _BIASES = 0, 1, 5, 12
_HIDDEN, _CELL = 18, 19
# The following are optional.
_PEEPHOLES, _PROJECTION, _PROJECTION_BIAS, _NORMS = (9, 10, 11), 16, 17, (20, 21, 22, 23)

_Operand = Callable[[SourceOperator, int], Tensor]


@dataclass(frozen=True)
class LstmTypes:
    """How the operands of one element type are read."""

    weights: _Operand  # a constant matrix at a position of the file
    vector: _Operand  # a constant vector: a peephole or a norm
    bias: str  # element type


@dataclass(frozen=True)
class LstmInputs:
    """The inputs in the order of ``attributes.Lstm``, and the options of the file."""

    inputs: tuple[int | None, ...]
    time_major: bool
    cell_clip: float
    projection_clip: float
    has_peepholes: bool
    has_norms: bool
    has_projection: bool


def lstm_states(op: SourceOperator) -> tuple[Tensor, Tensor]:
    """The hidden state and the cell state."""
    return op.input(_HIDDEN), op.input(_CELL)


def lstm_inputs(op: SourceOperator, types: LstmTypes) -> LstmInputs:
    """The inputs of an LSTM. ModelError if their shapes do not fit together."""
    if op.integer("FusedActivationFunction") != _TANH:
        raise op.unsupported("its activation is not TANH")
    x, out, (hidden, cell) = op.input(_X), op.output(), lstm_states(op)
    # Without weights of the input's gate it is coupled to that of forgetting.
    gates = [g for g in range(_GATES) if g > 0 or op.has_input(_BY_INPUT)]
    (cells, _), outputs = types.weights(op, _BY_INPUT + 1).shape, hidden.shape[1]
    for gate in gates:
        _check(op, types.weights(op, _BY_INPUT + gate), (cells, x.shape[2]))
        _check(op, types.weights(op, _BY_HIDDEN + gate), (cells, outputs))
    biases = [
        bias_of(op, cells, _BIASES + g, types.bias) if g in gates else None for g in range(_GATES)
    ]
    if any(biases[gate] is None for gate in gates):
        raise op.damaged("it lacks the bias of a gate")
    looking = [g for g in (0, 1, 2) if g > 0 or 0 in gates]
    peepholes = _vectors(op, types, _PEEPHOLES, looking, cells)
    norms = _vectors(op, types, _NORMS, gates, cells)
    projection: list[int | None] = [None, None]
    if op.has_input(_PROJECTION):
        _check(op, types.weights(op, _PROJECTION), (outputs, cells))
        bias = bias_of(op, outputs, _PROJECTION_BIAS, types.bias)
        projection = [op.inputs[_PROJECTION], bias]
    elif outputs != cells or op.has_input(_PROJECTION_BIAS):
        raise op.damaged(f"it makes {outputs} of {cells} cells without a projection")
    time_major = bool(op.option("TimeMajor"))
    batch = x.shape[1] if time_major else x.shape[0]
    states = (hidden.shape, cell.shape)
    if states != ((batch, outputs), (batch, cells)) or out.shape != (*x.shape[:2], outputs):
        raise op.damaged(f"its weights and states do not make {out.shape} of {x.shape}")
    clips = [float(op.option(name)) for name in ("CellClip", "ProjClip")]
    if not all(math.isfinite(clip) and clip >= 0 for clip in clips):
        raise op.damaged(f"its cell and projection clips are {clips[0]} and {clips[1]}")
    weights = [
        op.inputs[base + gate] if gate in gates else None
        for base in (_BY_INPUT, _BY_HIDDEN)
        for gate in range(_GATES)
    ]
    kept = (op.inputs[_HIDDEN], op.inputs[_CELL])
    return LstmInputs(
        (op.inputs[_X], *weights, *biases, *kept, *peepholes, *projection, *norms),
        time_major,
        clips[0],
        clips[1],
        any(number is not None for number in peepholes),
        any(number is not None for number in norms),
        projection[0] is not None,
    )


def _vectors(
    op: SourceOperator, types: LstmTypes, positions: tuple[int, ...], wanted: list[int], cells: int
) -> list[int | None]:
    """Vectors at some of these positions: all that are wanted, or none at all."""
    there = [index for index, position in enumerate(positions) if op.has_input(position)]
    if not there:
        return [None] * len(positions)
    if there != wanted:
        raise op.damaged(f"of its inputs {positions} it has those at {there}, not at {wanted}")
    for index in there:
        _check(op, types.vector(op, positions[index]), (cells,))
    return [op.inputs[p] if i in there else None for i, p in enumerate(positions)]


def _check(op: SourceOperator, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise op.damaged(f"'{tensor.name}' has shape {tensor.shape} instead of {shape}")
