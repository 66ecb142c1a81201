"""UNIDIRECTIONAL_SEQUENCE_LSTM of int16 by int8 weights, by the formula of TFLite Micro.

The formula is that of tensorflow/lite/micro/kernels/lstm_eval.h. A gate is a sum of two
FULLY_CONNECTED of int16, then LOGISTIC or TANH of int16; states are products by MUL. The file
``tests/oracle/test_micro_lstm.py`` has what TFLite Micro itself made of such operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import quantize_multiplier, short_multiplier
from utvm_deploy.kernels.native.routines.sigmoid_int16 import sigmoid_table
from utvm_deploy.oracle.micro_svdf import Quantized, scaled

_LEAST, _MOST = -32768, 32767
#: Scales of a gate before and after its function.
_BEFORE, _AFTER = 2.0**-12, 2.0**-15
_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_Values = NDArray[np.int64]


@dataclass(frozen=True)
class Gate:
    """The weights of a gate and its bias, [cells]."""

    by_input: Quantized  # [cells, inputs]
    by_hidden: Quantized  # [cells, cells]
    bias: Array


class MicroLstm:
    """The operator and its states, which are empty at first."""

    def __init__(
        self,
        x: Quantized,
        gates: Sequence[Gate],
        hidden: Quantized,
        cell: Quantized,
        *,
        time_major: bool,
        cell_clip: float,
    ) -> None:
        self._x, self._gates, self._hidden, self._cell = x, gates, hidden, cell
        self._time_major = time_major
        self._kept = quantize_multiplier(_AFTER)
        self._added = quantize_multiplier(_AFTER * _AFTER / cell.scale)
        self._made = quantize_multiplier(_AFTER * _AFTER / hidden.scale)
        limit = int(min(cell_clip / cell.scale, _MOST)) if cell_clip > 0 else 0
        self._low, self._high = (-limit, limit) if limit else (_LEAST, _MOST)
        self.restart()

    def restart(self) -> None:
        """Empty the states."""
        self.hidden: _Values = np.zeros(self._hidden.data.shape, np.int64)
        self.cell: _Values = np.zeros(self._cell.data.shape, np.int64)

    def step(self, x: Array) -> Array:
        """The output for the next input: a hidden state for each of its steps."""
        steps = x.astype(np.int64) if self._time_major else x.astype(np.int64).swapaxes(0, 1)
        made = []
        for values in steps:
            self._advance(values)
            made.append(self.hidden.astype(np.int16))
        output = np.stack(made)
        return output if self._time_major else np.ascontiguousarray(output.swapaxes(0, 1))

    def _advance(self, x: _Values) -> None:
        sums = [self._gate_sums(gate, x) for gate in self._gates]
        enter, forget, leave = (_logistic(sums[gate]) for gate in (_INPUT, _FORGET, _OUTPUT))
        kept = _limited(scaled(forget * self.cell, self._kept))
        added = _limited(scaled(enter * _tanh(sums[_CELL], _BEFORE), self._added))
        self.cell = np.clip(_limited(kept + added), self._low, self._high)
        product = _tanh(self.cell, self._cell.scale) * leave
        self.hidden = _limited(scaled(product, self._made))

    def _gate_sums(self, gate: Gate, x: _Values) -> _Values:
        first = x @ gate.by_input.data.astype(np.int64).T + gate.bias
        second = self.hidden @ gate.by_hidden.data.astype(np.int64).T
        first = _gate_scaled(first, self._x.scale, gate.by_input.scale)
        return _limited(first + _gate_scaled(second, self._hidden.scale, gate.by_hidden.scale))


def _gate_scaled(sums: _Values, values: float, weights: float) -> _Values:
    """Sums in 64 bits as FULLY_CONNECTED of int16 brings them to a gate's scale."""
    scale = float(np.float32(values) * np.float32(weights)) / _BEFORE
    multiplier, shift = quantize_multiplier(scale)
    bits = 15 - shift
    return _limited((sums * short_multiplier(multiplier) + (1 << (bits - 1))) >> bits)


def _limited(values: _Values) -> _Values:
    return np.clip(values, _LEAST, _MOST)


def _line(magnitude: _Values, bits: int, largest: int) -> _Values:
    """On the line between two entries of the table, 2**bits apart."""
    table = sigmoid_table().astype(np.int64)
    entry = magnitude >> bits
    below = np.minimum(entry, len(table) - 2)
    share = magnitude & ((1 << bits) - 1)
    found = (table[below] << bits) + share * (table[below + 1] - table[below])
    return np.where(entry >= len(table) - 1, largest, found)


def _logistic(values: _Values) -> _Values:
    """LOGISTIC of int16 at a scale of 2**-12."""
    values = values * 3
    share = _line(np.abs(values), 9, 0x7FFF << 10)
    return np.where(values >= 0, share + (1 << 9), (1 << 25) + (1 << 9) - 1 - share) >> 10


def _tanh(values: _Values, scale: float) -> _Values:
    """TANH of int16 at a scale that is a power of two: tanh(x) = 2 sigmoid(2 x) - 1."""
    left = 12 + int(np.log2(scale))
    right = max(-left, 0)
    values = (values * (3 << max(left, 0)) + (1 << right >> 1)) >> right
    share = _line(np.abs(values), 8, 0xFFFF << 8)
    positive, negative = share - (1 << 23) + (1 << 7), (1 << 23) + (1 << 7) - 1 - share
    return np.where(values >= 0, positive, negative) >> 8
