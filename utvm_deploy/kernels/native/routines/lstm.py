"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8: all steps of all sequences in C, by tables made here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Lstm
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operands import constant_of, input_of, operand_of, quantization_of
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts

_GATES = 4
_NUMBERS = 4 * _GATES + 6
# Gates are fixed-point numbers with three integer bits before their functions.
_GATE_SCALE = 2.0**-12


@dataclass(frozen=True)
class LstmSequences(RoutineKernel):
    """Shapes; states may be written where they are read."""

    batch: int
    steps: int
    inputs: int
    cells: int
    is_time_major: bool

    @property
    def name(self) -> str:
        order = "time" if self.is_time_major else "batch"
        return f"lstm_{label((self.batch, self.steps, self.inputs))}_{self.cells}_by_{order}"

    why: ClassVar[str] = f"C, {ROWS} cells' products at a time"

    @property
    def routine(self) -> RoutineCall:
        strides = (self.batch, 1) if self.is_time_major else (1, self.steps)
        sizes = (self.batch, self.steps, self.inputs, self.cells)
        gates = Operand("gates", (_GATES * self.cells,), "int16")
        sums = Operand("sums", (2 * self.cells,), "int32")
        return RoutineCall("utvm_lstm", self._buffers, (*sizes, *strides), (gates, sums))

    def texts(self, core: str) -> tuple[str, ...]:
        return (*dot_texts(core), shared_text("utvm_gates16"), shared_text("utvm_lstm"))

    @property
    def _buffers(self) -> tuple[Operand, ...]:
        sequences = self.batch * self.steps
        rows = _GATES * self.cells
        states = (self.batch * self.cells,)
        return (
            Operand("input", (sequences * self.inputs,), "int8"),
            Operand("input_weights", (rows * self.inputs,), "int8"),
            Operand("hidden_weights", (rows * self.cells,), "int8"),
            Operand("bias", (2 * rows,), "int32"),
            Operand("numbers", (_NUMBERS,), "int32"),
            Operand("hidden_before", states, "int8"),
            Operand("cell_before", states, "int16"),
            Operand("output", (sequences * self.cells,), "int8"),
            Operand("hidden", states, "int8"),
            Operand("cell", states, "int16"),
        )


def lower_lstm(graph: Graph, operator: Operator) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; its operands are in the order of ``attributes.Lstm``."""
    a = operator.attributes
    assert isinstance(a, Lstm)
    position, source = input_of(graph, operator, 0)
    (hidden, hidden_tensor), (cell, _) = (input_of(graph, operator, i) for i in (13, 14))
    by_input = [constant_of(graph, operator, 1 + gate) for gate in range(_GATES)]
    by_hidden = [constant_of(graph, operator, 5 + gate) for gate in range(_GATES)]
    outer, inner, inputs = source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    cells = by_input[0].shape[0]
    zero_points = [quantization_of(t).zero_point for t in (source, hidden_tensor)]
    bias: list[Array] = [
        fold_input_offset(constant_of(graph, operator, 9 + gate), weights, zero_points[0])
        for gate, weights in enumerate(by_input)
    ]
    none = np.zeros(cells, np.int32)
    bias += [fold_input_offset(none, weights, zero_points[1]) for weights in by_hidden]
    kernel = LstmSequences(batch, steps, inputs, cells, a.time_major)
    return KernelCall(
        kernel,
        (
            operand_of(position, source),
            ConstantArgument("input_weights", np.stack(by_input)),
            ConstantArgument("hidden_weights", np.stack(by_hidden)),
            ConstantArgument("bias", np.stack(bias)),
            ConstantArgument("numbers", _numbers(graph, operator, a)),
            TensorArgument(hidden),
            TensorArgument(cell),
            *(TensorArgument(number) for number in operator.outputs),
        ),
        in_place=((operator.outputs[1], hidden), (operator.outputs[2], cell)),
        macs=batch * steps * _GATES * cells * (inputs + cells),
    )


def _numbers(graph: Graph, operator: Operator, a: Lstm) -> Array:
    """What ``utvm_lstm.h`` calls numbers."""

    def scale(index: int) -> Any:
        return np.float32(quantization_of(input_of(graph, operator, index)[1]).scale)

    numbers: list[int] = []
    for gate in range(_GATES):
        for weights, activation in ((1 + gate, 0), (5 + gate, 13)):
            # A product and a quotient of float32.
            ratio = scale(weights) * scale(activation) / np.float32(_GATE_SCALE)
            numbers += quantize_multiplier(float(ratio))
    hidden = np.float32(2.0**-15 / a.hidden_scale * 2.0**-15)
    numbers += [*quantize_multiplier(float(hidden)), a.hidden_zero_point]
    cell_scale = float(scale(14))
    exponent = math.frexp(cell_scale)[1] - 1
    clip = min(int(np.float32(a.cell_clip) / np.float32(cell_scale)), 32767) if a.cell_clip else 0
    numbers += [30 + exponent, 15 + exponent, clip]
    return np.array(numbers, np.int32)
