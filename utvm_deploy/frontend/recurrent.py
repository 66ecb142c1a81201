"""Importing what keeps a state between runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from utvm_deploy.frontend.operands import (
    bias_of,
    clamp_of,
    made,
    movable,
    quantized,
    scale_of,
    zero_point_of,
)
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.frontend.supported_operator import INT8, MOVED_OR_TRUE, SupportedOperator
from utvm_deploy.graph.attributes import Lstm, Svdf, Variable
from utvm_deploy.graph.model import Operator, Tensor

_TANH = 4  # the schema's number of that activation
_INTERMEDIATES = 5
_HALF = 0.5
# What the reference's fixed-point tanh has integer bits for.
_CELL_EXPONENTS = range(-15, -8)
_GATES = 4
#: Gates are fixed-point numbers with three integer bits, unless they are normalized.
_GATE_SCALE = 2.0**-12
_MOST_CELLS = 65535
# Optional inputs of the file.
_PEEPHOLES, _PROJECTION, _PROJECTION_BIAS, _NORMS = (9, 10, 11), 16, 17, (20, 21, 22, 23)


def import_svdf(op: SourceOperator) -> Operator:
    """SVDF with int8 weights for features, int16 for time, and a state of int16."""
    x, out = quantized(op, op.input(0), 2), quantized(op, op.output(), 2)
    features, times = _constant(op, 1, "int8"), _constant(op, 2, "int16")
    state = quantized(op, op.input(4), 2, ("int16",))
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
    """UNIDIRECTIONAL_SEQUENCE_LSTM with its four gates and all optional parts."""
    x, out = quantized(op, op.input(0), 3), quantized(op, op.output(), 3)
    if op.integer("FusedActivationFunction") != _TANH:
        raise op.unsupported("its activation is not TANH")
    # Without weights of the input's gate it is coupled to that of forgetting.
    gates = [g for g in range(_GATES) if g > 0 or op.has_input(1)]
    hidden, cell = quantized(op, op.input(18), 2), quantized(op, op.input(19), 2, ("int16",))
    (cells, _), outputs = _weights(op, 2).shape, hidden.shape[1]
    for gate in gates:
        _check(op, _weights(op, 1 + gate), (cells, x.shape[2]))
        _check(op, _weights(op, 5 + gate), (cells, outputs))
    biases = [bias_of(op, cells, position=12 + g) if g in gates else None for g in range(_GATES)]
    if any(biases[gate] is None for gate in gates):
        raise op.damaged("it lacks the bias of a gate")
    peepholes = _peepholes(op, gates, cells, outputs)
    norms = _vectors(op, _NORMS, gates, cells)
    projection: list[int | None] = [None, None]
    if op.has_input(_PROJECTION):
        _check(op, _weights(op, _PROJECTION), (outputs, cells))
        projection = [op.inputs[_PROJECTION], bias_of(op, outputs, position=_PROJECTION_BIAS)]
    elif outputs != cells or op.has_input(_PROJECTION_BIAS):
        raise op.damaged(f"it makes {outputs} of {cells} cells without a projection")
    time_major = bool(op.option("TimeMajor"))
    batch = x.shape[1] if time_major else x.shape[0]
    fits = (
        (hidden.shape, cell.shape) == ((batch, outputs), (batch, cells))
        and out.shape == (*x.shape[:2], outputs)
        and cells <= _MOST_CELLS
    )
    if not fits:
        raise op.damaged(f"its weights and states do not make {out.shape} of {x.shape}")
    _check_cell(op, cell)
    attributes = _lstm(op, out, time_major, is_normalized=any(n is not None for n in norms))
    weights = [
        op.inputs[base + gate] if gate in gates else None
        for base in (1, 5)
        for gate in range(_GATES)
    ]
    states = (op.inputs[18], op.inputs[19])
    inputs = (op.inputs[0], *weights, *biases, *states, *peepholes, *projection, *norms)
    return made(op, inputs, attributes)


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


def _lstm(op: SourceOperator, out: Tensor, time_major: bool, *, is_normalized: bool) -> Lstm:
    """What the intermediates and options say."""
    if len(op.intermediates) != _INTERMEDIATES:
        raise op.damaged(f"it has {len(op.intermediates)} intermediates, not {_INTERMEDIATES}")
    inside = [op.tensors[number] for number in op.intermediates]
    # Those of the gates count only where they are normalized.
    for tensor in inside if is_normalized else inside[-1:]:
        if tensor.quantization is None or tensor.quantization.axis is not None:
            raise op.damaged(f"its inner tensor '{tensor.name}' has no scale and zero point")
    clips = [float(op.option(name)) for name in ("CellClip", "ProjClip")]
    if not all(math.isfinite(clip) and clip >= 0 for clip in clips):
        raise op.damaged(f"its cell and projection clips are {clips[0]} and {clips[1]}")
    scales = [_GATE_SCALE] * _GATES
    if is_normalized:
        scales = [scale_of(tensor) for tensor in inside[:_GATES]]
    return Lstm(
        scale_of(inside[-1]),
        zero_point_of(inside[-1]),
        clips[0],
        time_major,
        clips[1],
        scale_of(out),
        (scales[0], scales[1], scales[2], scales[3]),
    )


def _peepholes(op: SourceOperator, gates: list[int], cells: int, outputs: int) -> list[int | None]:
    """What looks at the cell: all gates but the cell's own, or none."""
    found = _vectors(op, _PEEPHOLES, [g for g in (0, 1, 2) if g > 0 or 0 in gates], cells)
    if any(number is not None for number in found) and outputs != cells:
        raise op.unsupported(
            f"it has peepholes and projects {cells} cells to {outputs}, where the reference looks "
            "at wrong cells"
        )
    return found


def _vectors(
    op: SourceOperator, positions: tuple[int, ...], wanted: list[int], cells: int
) -> list[int | None]:
    """Vectors of int16 at some of these positions: all that are wanted, or none at all."""
    there = [index for index, position in enumerate(positions) if op.has_input(position)]
    if not there:
        return [None] * len(positions)
    if there != wanted:
        raise op.damaged(f"of its inputs {positions} it has those at {there}, not at {wanted}")
    for index in there:
        tensor = quantized(op, op.input(positions[index]), 1, ("int16",))
        if tensor.data is None or zero_point_of(tensor) != 0:
            raise op.unsupported(f"'{tensor.name}' must be constant, with the zero point 0")
        _check(op, tensor, (cells,))
    return [op.inputs[p] if i in there else None for i, p in enumerate(positions)]


def _check(op: SourceOperator, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise op.damaged(f"'{tensor.name}' has shape {tensor.shape} instead of {shape}")


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
    "SVDF": SupportedOperator(import_svdf, INT8, "int8 and int16 weights; int16 state; fused RELU"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SupportedOperator(
        import_lstm,
        INT8,
        "cell state int16 of scale 2**n; with or without coupled gates, projection, layer "
        "normalization, and peepholes if outputs are as many as cells",
    ),
}
