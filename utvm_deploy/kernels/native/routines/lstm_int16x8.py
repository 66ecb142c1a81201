"""UNIDIRECTIONAL_SEQUENCE_LSTM of int16 by int8 weights: a C routine, as TFLite Micro computes it.

The rows of all four gates are one product by input and one by hidden state.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import Lstm
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import quantize_multiplier, short_multiplier
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.native.routines.dot import wide_dot_texts
from utvm_deploy.kernels.native.routines.int16x8 import is_short, pack_rows, packed_extent
from utvm_deploy.kernels.native.routines.sigmoid_int16 import LOGISTIC, TANH, sigmoid_words
from utvm_deploy.kernels.portable.integers.convolution import PRODUCT_BITS

# The operator's inputs, as ``attributes.Lstm`` lists them. The first three have one for each gate.
_INPUT_WEIGHTS, _HIDDEN_WEIGHTS, _BIASES, _HIDDEN, _CELL = 1, 5, 9, 13, 14
_GATES = 4
#: Scales of a gate before and after its function.
_BEFORE, _AFTER = 2.0**-12, 2.0**-15
#: The left shift of TANH at a scale of 1.
_TANH_BITS = 12
#: The largest left shift of the reference's product of 64 bits.
_MOST_SHIFT = 7
#: Sums that the reference multiplies by 15 bits.
_MOST_BITS_OF_SUM = 47


def lower_lstm(op: Operation) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; a new state may be written where the old one is."""
    a = op.attributes(Lstm)
    hidden, cell = op.position(_HIDDEN), op.position(_CELL)
    outer, inner, inputs = op.source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    order, strides = ("time", (batch, 1)) if a.time_major else ("batch", (1, steps))
    cells = op.constant(_HIDDEN_WEIGHTS).shape[1]

    def gates(first: int) -> Array:
        return np.concatenate([op.constant(first + gate) for gate in range(_GATES)])

    bias = gates(_BIASES).astype(np.int64)
    if (max(inputs, cells) << PRODUCT_BITS) + int(np.abs(bias).max()) >= 1 << _MOST_BITS_OF_SUM:
        raise UnsupportedOperator(
            f"{op.kind} {_made(op)} has a bias with which sums may exceed "
            f"{_MOST_BITS_OF_SUM} bits; convert the model again"
        )
    by_input, by_hidden = gates(_INPUT_WEIGHTS), gates(_HIDDEN_WEIGHTS)
    numbers = _numbers(op, a)
    shifts = np.array(numbers[1 : 4 * _GATES : 2])
    has_short_sums = all(
        is_short(weights, addends, own)
        for weights, addends, own in (
            (by_input, bias, shifts[::2]),
            (by_hidden, np.zeros_like(bias), shifts[1::2]),
        )
    )
    parameters: dict[str, Array | TensorArgument] = {
        "input_weights": pack_rows(by_input),
        "hidden_weights": pack_rows(by_hidden),
        "bias": bias,
        "logistic": sigmoid_words(is_tanh=False),
        "tanh": sigmoid_words(is_tanh=True),
        "numbers": np.array([*numbers, has_short_sums], np.int32),
        "hidden_before": TensorArgument(hidden),
        "cell_before": TensorArgument(cell),
    }
    sizes = (batch, steps, inputs, cells)
    kernel = CRoutine(
        "utvm_lstm_wide",
        parameters_of(op, parameters, ("output", "hidden", "cell")),
        (*sizes, *strides),
        (
            Operand("gates", (_GATES * cells,), "int16"),
            Operand("row", (packed_extent(max(inputs, cells)),), "int16"),
            Operand("totals", (_GATES * cells,), "int64"),
        ),
        name=f"lstm_{label(sizes)}_16x8_by_{order}",
        why="C, the products of four rows at a time",
        c_texts=(
            *(shared_text("utvm_gates16"), LOGISTIC.one),
            *(TANH.one, shared_text("utvm_lstm_wide")),
        ),
        assembly=wide_dot_texts,
    )
    call = op.call(kernel, parameters, macs=batch * steps * cells * _GATES * (inputs + cells))
    _, hidden_after, cell_after = op.operator.outputs
    return replace(call, in_place=((hidden_after, hidden), (cell_after, cell)))


def _made(op: Operation) -> str:
    return op.graph.tensors[op.operator.outputs[0]].name


def _numbers(op: Operation, a: Lstm) -> list[int]:
    """What ``utvm_lstm_wide.h`` calls numbers."""

    def scale(position: int) -> float:
        return float(np.float32(quantization_of(op.input(position)).scale))

    numbers = []
    for gate in range(_GATES):
        for weights, values in ((_INPUT_WEIGHTS, 0), (_HIDDEN_WEIGHTS, _HIDDEN)):
            product = np.float32(scale(weights + gate)) * np.float32(scale(values))
            multiplier, shift = quantize_multiplier(float(product) / _BEFORE)
            if shift > _MOST_SHIFT:
                raise UnsupportedOperator(
                    f"{op.kind} {_made(op)} has weights of scale {scale(weights + gate):g}, "
                    "with which its sums exceed 64 bits; convert the model again"
                )
            numbers += [short_multiplier(multiplier), shift]
    cell = scale(_CELL)
    made = (_AFTER, _AFTER * _AFTER / cell, _AFTER * _AFTER / scale(_HIDDEN))
    left = _TANH_BITS + math.frexp(cell)[1] - 1
    limit = min(int(a.cell_clip / cell), 32767) if a.cell_clip else 0
    tanh = (3 << max(left, 0), max(-left, 0))
    return [*numbers, *chain(*map(quantize_multiplier, made)), *tanh, limit]


INT16_LOWERINGS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm}
