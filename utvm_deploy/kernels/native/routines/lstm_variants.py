"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8 with more, or fewer, than its four gates.

Coupled gates, peepholes, layer normalization and a projection, in any combination;
``lstm.py`` is faster where there is none of them.
"""

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
from utvm_deploy.kernels.native.routines.dot import dot_texts
from utvm_deploy.kernels.native.routines.lstm import lower_lstm

_GATES = 4
_NUMBERS = 9 * _GATES + 15
#: Where the peepholes are of the gates that have one, and the norms of all, in ``attributes.Lstm``.
_PEEPHOLES = {0: 15, 1: 16, 3: 17}
_PROJECTION, _PROJECTION_BIAS, _NORMS = 18, 19, 20
_FACTOR = 10000


@dataclass(frozen=True)
class FullLstm(RoutineKernel):
    """Shapes; states may be written where they are read."""

    batch: int
    steps: int
    inputs: int
    outputs: int
    cells: int
    gates: int  # 3 if that of the input is coupled to that of forgetting
    has_peepholes: bool
    has_norms: bool
    has_projection: bool
    is_time_major: bool

    @property
    def name(self) -> str:
        order = "time" if self.is_time_major else "batch"
        shape = (self.batch, self.steps, self.inputs, self.outputs, self.cells)
        flags = (self.gates == _GATES, self.has_peepholes, self.has_norms, self.has_projection)
        return f"lstm_{label(shape)}_{''.join('01'[f] for f in flags)}_by_{order}"

    why: ClassVar[str] = "generic C, one gate at a time"

    @property
    def routine(self) -> RoutineCall:
        strides = (self.batch, 1) if self.is_time_major else (1, self.steps)
        sizes = (self.batch, self.steps, self.inputs, self.outputs, self.cells)
        scratch = (
            Operand("gates", (_GATES * self.cells,), "int16"),
            Operand("row", (self.cells,), "int8"),
        )
        return RoutineCall("utvm_lstm_full", self._buffers, (*sizes, *strides), scratch)

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("utvm_gates16", "utvm_inverse_root", "utvm_lstm_full")
        return (*dot_texts(core), *map(shared_text, names))

    @property
    def _buffers(self) -> tuple[Operand, ...]:
        sequences, rows = self.batch * self.steps, self.gates * self.cells
        peepholes = (self.gates - 1) * self.cells if self.has_peepholes else 1
        norms = rows if self.has_norms else 1
        projects = self.has_projection
        return (
            Operand("input", (sequences * self.inputs,), "int8"),
            Operand("input_weights", (rows * self.inputs,), "int8"),
            Operand("hidden_weights", (rows * self.outputs,), "int8"),
            Operand("bias", (2 * rows,), "int32"),
            Operand("peephole", (peepholes,), "int16"),
            Operand("norm", (norms,), "int16"),
            Operand("norm_bias", (norms,), "int32"),
            Operand("projection", (self.outputs * self.cells if projects else 1,), "int8"),
            Operand("projection_bias", (self.outputs if projects else 1,), "int32"),
            Operand("numbers", (_NUMBERS,), "int32"),
            Operand("hidden_before", (self.batch * self.outputs,), "int8"),
            Operand("cell_before", (self.batch * self.cells,), "int16"),
            Operand("output", (sequences * self.outputs,), "int8"),
            Operand("hidden", (self.batch * self.outputs,), "int8"),
            Operand("cell", (self.batch * self.cells,), "int16"),
        )


def is_plain(operator: Operator) -> bool:
    """Whether there are four gates and nothing beside them."""
    return operator.inputs[1] is not None and all(i is None for i in operator.inputs[15:])


def lower_full_lstm(graph: Graph, operator: Operator) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; its operands are in the order of ``attributes.Lstm``."""
    a = operator.attributes
    assert isinstance(a, Lstm)
    position, source = input_of(graph, operator, 0)
    (hidden, hidden_tensor), (cell, _) = (input_of(graph, operator, i) for i in (13, 14))
    gates = [gate for gate in range(_GATES) if operator.inputs[1 + gate] is not None]
    has_peepholes, has_norms, has_projection = (
        operator.inputs[i] is not None for i in (_PEEPHOLES[1], _NORMS + 1, _PROJECTION)
    )
    by_input = [constant_of(graph, operator, 1 + gate) for gate in gates]
    by_hidden = [constant_of(graph, operator, 5 + gate) for gate in gates]
    biases = [constant_of(graph, operator, 9 + gate) for gate in gates]
    outer, inner, inputs = source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    (cells, _), outputs = by_input[0].shape, by_hidden[0].shape[1]
    zero_points = [quantization_of(t).zero_point for t in (source, hidden_tensor)]
    none = np.zeros(cells, np.int32)
    folded: list[Array] = [
        fold_input_offset(none if has_norms else bias, weights, zero_points[0])
        for bias, weights in zip(biases, by_input, strict=True)
    ]
    folded += [fold_input_offset(none, weights, zero_points[1]) for weights in by_hidden]
    peepholes = norms = np.zeros(1, np.int16)
    norm_bias: Array = np.zeros(1, np.int32)
    projection_bias: Array = np.zeros(1, np.int32)
    projection: Array = np.zeros(1, np.int8)
    if has_peepholes:
        seen = [constant_of(graph, operator, i) for g, i in _PEEPHOLES.items() if g in gates]
        peepholes = np.stack(seen)
    if has_norms:
        norms = np.stack([constant_of(graph, operator, _NORMS + gate) for gate in gates])
        norm_bias = np.stack(biases)
    if has_projection:
        projection = constant_of(graph, operator, _PROJECTION)
        projection_bias = np.zeros(outputs, np.int32)
        if operator.inputs[_PROJECTION_BIAS] is not None:
            projection_bias = constant_of(graph, operator, _PROJECTION_BIAS)
        # The reference holds what is projected with its zero point negated.
        projection_bias = fold_input_offset(projection_bias, projection, -a.hidden_zero_point)
    flags = (has_peepholes, has_norms, has_projection)
    kernel = FullLstm(batch, steps, inputs, outputs, cells, len(gates), *flags, a.time_major)
    return KernelCall(
        kernel,
        (
            operand_of(position, source),
            ConstantArgument("input_weights", np.stack(by_input)),
            ConstantArgument("hidden_weights", np.stack(by_hidden)),
            ConstantArgument("bias", np.stack(folded)),
            ConstantArgument("peephole", peepholes),
            ConstantArgument("norm", norms),
            ConstantArgument("norm_bias", norm_bias),
            ConstantArgument("projection", projection),
            ConstantArgument("projection_bias", projection_bias),
            ConstantArgument("numbers", _numbers(graph, operator, a, gates, flags)),
            TensorArgument(hidden),
            TensorArgument(cell),
            *(TensorArgument(number) for number in operator.outputs),
        ),
        in_place=((operator.outputs[1], hidden), (operator.outputs[2], cell)),
        macs=batch * steps * cells * (len(gates) * (inputs + outputs) + has_projection * outputs),
    )


def _numbers(
    graph: Graph, operator: Operator, a: Lstm, gates: list[int], flags: tuple[bool, ...]
) -> Array:
    """What ``utvm_lstm_full.h`` calls numbers."""
    has_peepholes, has_norms, has_projection = flags

    def scale(index: int) -> Any:
        return np.float32(quantization_of(input_of(graph, operator, index)[1]).scale)

    cell_scale = float(scale(14))
    exponent = math.frexp(cell_scale)[1] - 1
    numbers: list[int] = []
    for gate in range(_GATES):
        own = [0] * 9
        if gate in gates:
            made = np.float32(a.gate_scales[gate])
            for at, weights, activation in ((0, 1 + gate, 0), (2, 5 + gate, 13)):
                ratio = scale(weights) * scale(activation) / made
                own[at : at + 2] = quantize_multiplier(float(ratio))
            if has_peepholes and gate in _PEEPHOLES:
                # The power of two is one of double precision here.
                seen = 2.0**exponent * float(scale(_PEEPHOLES[gate])) / float(made)
                own[4:6] = quantize_multiplier(float(np.float32(seen)))
            if has_norms:
                norm = scale(_NORMS + gate)
                own[6:8] = quantize_multiplier(float(norm))
                own[8] = max(1, int(np.float32(_FACTOR) * norm))
        numbers += own
    hidden = np.float32(2.0**-15 / a.hidden_scale * 2.0**-15)
    zero_point = -a.hidden_zero_point if has_projection else a.hidden_zero_point
    numbers += [*quantize_multiplier(float(hidden)), zero_point]
    clip = min(int(np.float32(a.cell_clip) / np.float32(cell_scale)), 32767) if a.cell_clip else 0
    numbers += [30 + exponent, 15 + exponent, clip]
    output = quantization_of(input_of(graph, operator, 13)[1])
    projected = [0, 0, output.zero_point, 0]
    if has_projection:
        ratio = scale(_PROJECTION) * np.float32(a.hidden_scale) / np.float32(output.scale)
        projected[:2] = quantize_multiplier(float(ratio))
        if a.projection_clip:
            most = np.float32(a.projection_clip) / np.float32(a.output_scale)
            projected[3] = min(int(most), 127)
    numbers += [*projected, gates[0], gates[0], *(int(flag) for flag in flags)]
    return np.array(numbers, np.int32)


def lower_any_lstm(graph: Graph, operator: Operator) -> KernelCall:
    """The LSTM without variants has a faster kernel."""
    return (lower_lstm if is_plain(operator) else lower_full_lstm)(graph, operator)


LOWERINGS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lower_any_lstm}
