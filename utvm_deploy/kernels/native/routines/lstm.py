"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8: a C routine computes all steps of all sequences.

A layer with four gates and nothing else has a faster routine. The other one takes coupled gates,
peepholes, layer normalization and a projection, in any combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Lstm
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand, buffers
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    input_of,
    kernel_call,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts

# The operator's inputs, as ``attributes.Lstm`` lists them. The first four have one for each gate.
_INPUT_WEIGHTS, _HIDDEN_WEIGHTS, _BIASES, _NORMS = 1, 5, 9, 20
_HIDDEN, _CELL, _PROJECTION, _PROJECTION_BIAS = 13, 14, 18, 19
_PEEPHOLES = {0: 15, 1: 16, 3: 17}  # by gate; that of the cell has none
_GATES = 4
#: A plain layer's gates have three integer bits before their activation functions.
_GATE_SCALE = 2.0**-12
#: From a norm's scale to the least variance.
_VARIANCE_FACTOR = 10000
#: What both routines take, before and after the tables that only one has.
_WEIGHTS = buffers(input="int8", input_weights="int8", hidden_weights="int8", bias="int32")
_STATES = (
    *buffers(numbers="int32", hidden_before="int8", cell_before="int16"),
    *buffers(output="int8", hidden="int8", cell="int16"),
)


@dataclass(frozen=True)
class PlainLstm(RoutineKernel):
    """The shape of a layer with four gates. A new state may be written where the old one is."""

    batch: int
    steps: int
    inputs: int
    cells: int
    is_time_major: bool

    why: ClassVar[str] = f"C, {ROWS} cells' products at a time"

    @property
    def name(self) -> str:
        shape = (self.batch, self.steps, self.inputs)
        return f"lstm_{label(shape)}_{self.cells}_by_{_order(self.is_time_major)}"

    @property
    def routine(self) -> RoutineCall:
        sizes = (self.batch, self.steps, self.inputs, self.cells)
        strides = _strides(self.batch, self.steps, self.is_time_major)
        gates = Operand("gates", (_GATES * self.cells,), "int16")
        sums = Operand("sums", (2 * self.cells,), "int32")
        return RoutineCall("utvm_lstm", (*_WEIGHTS, *_STATES), (*sizes, *strides), (gates, sums))

    def texts(self, core: str) -> tuple[str, ...]:
        return (*dot_texts(core), *map(shared_text, ("utvm_gates16", "utvm_lstm")))


@dataclass(frozen=True)
class FullLstm(RoutineKernel):
    """The shape of any layer. A new state may be written where the old one is."""

    batch: int
    steps: int
    inputs: int
    outputs: int
    cells: int
    gates: int  # 3 if the input gate is coupled to the forget gate
    has_peepholes: bool
    has_norms: bool
    has_projection: bool
    is_time_major: bool

    why: ClassVar[str] = "generic C, one gate at a time"

    @property
    def name(self) -> str:
        shape = (self.batch, self.steps, self.inputs, self.outputs, self.cells)
        flags = (self.gates == _GATES, self.has_peepholes, self.has_norms, self.has_projection)
        order = _order(self.is_time_major)
        return f"lstm_{label(shape)}_{''.join('01'[f] for f in flags)}_by_{order}"

    @property
    def routine(self) -> RoutineCall:
        sizes = (self.batch, self.steps, self.inputs, self.outputs, self.cells)
        strides = _strides(self.batch, self.steps, self.is_time_major)
        tables = (
            *buffers(peephole="int16", norm="int16", norm_bias="int32"),
            *buffers(projection="int8", projection_bias="int32"),
        )
        gates = Operand("gates", (_GATES * self.cells,), "int16")
        row = Operand("row", (self.cells,), "int8")
        parameters = (*_WEIGHTS, *tables, *_STATES)
        return RoutineCall("utvm_lstm_full", parameters, (*sizes, *strides), (gates, row))

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("utvm_gates16", "utvm_inverse_root", "utvm_lstm_full")
        return (*dot_texts(core), *map(shared_text, names))


def _order(is_time_major: bool) -> str:
    """Of input and output, as part of a kernel's name."""
    return "time" if is_time_major else "batch"


def _strides(batch: int, steps: int, is_time_major: bool) -> tuple[int, int]:
    """Rows of the input from one step and from one sequence to the next."""
    return (batch, 1) if is_time_major else (1, steps)


def lower_lstm(graph: Graph, operator: Operator) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, by the plain routine where it suffices."""
    a = operator.attributes
    assert isinstance(a, Lstm)
    _, source = input_of(graph, operator, 0)
    (hidden, hidden_tensor), (cell, _) = (input_of(graph, operator, i) for i in (_HIDDEN, _CELL))
    gates = [g for g in range(_GATES) if operator.inputs[_INPUT_WEIGHTS + g] is not None]
    by_input, by_hidden, biases = (
        [constant_of(graph, operator, first + gate) for gate in gates]
        for first in (_INPUT_WEIGHTS, _HIDDEN_WEIGHTS, _BIASES)
    )
    outer, inner, inputs = source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    (cells, _), outputs = by_input[0].shape, by_hidden[0].shape[1]
    has_peepholes, has_norms, has_projection = (
        operator.inputs[i] is not None for i in (_PEEPHOLES[1], _NORMS + 1, _PROJECTION)
    )
    flags = has_peepholes, has_norms, has_projection
    none = np.zeros(cells, np.int32)
    folded = [
        fold_input_offset(none if has_norms else bias, weights, quantization_of(source).zero_point)
        for bias, weights in zip(biases, by_input, strict=True)
    ]
    state = quantization_of(hidden_tensor).zero_point
    folded += [fold_input_offset(none, weights, state) for weights in by_hidden]
    scale = _scales_of(graph, operator)
    kernel: PlainLstm | FullLstm
    tables: dict[str, Array] = {}
    if len(gates) == _GATES and not any(flags):
        kernel = PlainLstm(batch, steps, inputs, cells, a.time_major)
        numbers = _plain_numbers(scale, a)
    else:
        kernel = FullLstm(batch, steps, inputs, outputs, cells, len(gates), *flags, a.time_major)
        tables = _tables(graph, operator, a, gates, flags)
        numbers = _full_numbers(scale, a, gates, flags, state)
    call = kernel_call(
        graph,
        operator,
        kernel,
        {
            "input_weights": np.stack(by_input),
            "hidden_weights": np.stack(by_hidden),
            "bias": np.stack(folded),
            **tables,
            "numbers": np.array(numbers, np.int32),
            "hidden": TensorArgument(hidden),
            "cell": TensorArgument(cell),
        },
        macs=batch * steps * cells * (len(gates) * (inputs + outputs) + has_projection * outputs),
    )
    return replace(call, in_place=((operator.outputs[1], hidden), (operator.outputs[2], cell)))


def _tables(
    graph: Graph, operator: Operator, a: Lstm, gates: Sequence[int], flags: Sequence[bool]
) -> dict[str, Array]:
    """The tables that only ``FullLstm`` has; one element stands for a table that a layer lacks."""
    has_peepholes, has_norms, has_projection = flags

    def constants(first: int, *, of: Iterable[int] = gates) -> Array:
        return np.stack([constant_of(graph, operator, first + gate) for gate in of])

    tables: dict[str, Array] = {
        "peephole": np.zeros(1, np.int16),
        "norm": np.zeros(1, np.int16),
        "norm_bias": np.zeros(1, np.int32),
        "projection": np.zeros(1, np.int8),
        "projection_bias": np.zeros(1, np.int32),
    }
    if has_peepholes:
        tables["peephole"] = constants(0, of=[i for g, i in _PEEPHOLES.items() if g in gates])
    if has_norms:
        tables["norm"], tables["norm_bias"] = constants(_NORMS), constants(_BIASES)
    if has_projection:
        projection = constant_of(graph, operator, _PROJECTION)
        bias = bias_of(graph, operator, projection.shape[0], _PROJECTION_BIAS)
        tables["projection"] = projection
        # The reference holds what is projected with its zero point negated.
        tables["projection_bias"] = fold_input_offset(bias, projection, -a.hidden_zero_point)
    return tables


def _scales_of(graph: Graph, operator: Operator) -> Callable[[int], Any]:
    """A function from an input's number to its scale in float32, in which the reference counts."""
    return lambda index: np.float32(quantization_of(input_of(graph, operator, index)[1]).scale)


def _plain_numbers(scale: Callable[[int], Any], a: Lstm) -> list[int]:
    """What ``utvm_lstm.h`` calls numbers."""
    gates = [_gate_numbers(scale, gate, np.float32(_GATE_SCALE)) for gate in range(_GATES)]
    return [*chain(*gates), *_state_numbers(scale, a, a.hidden_zero_point)]


def _full_numbers(
    scale: Callable[[int], Any], a: Lstm, gates: Sequence[int], flags: Sequence[bool], state: int
) -> list[int]:
    """What ``utvm_lstm_full.h`` calls numbers; ``state`` is the hidden state's zero point."""
    has_peepholes, has_norms, has_projection = flags
    numbers: list[int] = []
    for gate in range(_GATES):
        peephole, norm = [0, 0], [0, 0, 0]
        if gate not in gates:
            numbers += [0] * 9
            continue
        made = np.float32(a.gate_scales[gate])
        if has_peepholes and gate in _PEEPHOLES:
            # The power of two is one of double precision here.
            ratio = 2.0 ** _cell_exponent(scale) * float(scale(_PEEPHOLES[gate])) / float(made)
            peephole = [*quantize_multiplier(float(np.float32(ratio)))]
        if has_norms:
            factor = scale(_NORMS + gate)
            least = max(1, int(np.float32(_VARIANCE_FACTOR) * factor))
            norm = [*quantize_multiplier(float(factor)), least]
        numbers += [*_gate_numbers(scale, gate, made), *peephole, *norm]
    zero_point = -a.hidden_zero_point if has_projection else a.hidden_zero_point
    numbers += _state_numbers(scale, a, zero_point)
    projected, largest = (0, 0), 0
    if has_projection:
        ratio = scale(_PROJECTION) * np.float32(a.hidden_scale) / scale(_HIDDEN)
        projected = quantize_multiplier(float(ratio))
        if a.projection_clip:
            largest = min(int(np.float32(a.projection_clip) / np.float32(a.output_scale)), 127)
    return [*numbers, *projected, state, largest, gates[0], gates[0], *map(int, flags)]


def _gate_numbers(scale: Callable[[int], Any], gate: int, made: Any) -> list[int]:
    """Multiplier and shift of the input and of the hidden state, for a gate of scale ``made``."""
    products = (_INPUT_WEIGHTS + gate, 0), (_HIDDEN_WEIGHTS + gate, _HIDDEN)
    ratios = (float(scale(weights) * scale(values) / made) for weights, values in products)
    return [*chain(*map(quantize_multiplier, ratios))]


def _state_numbers(scale: Callable[[int], Any], a: Lstm, zero_point: int) -> list[int]:
    """Multiplier, shift and zero point of the hidden state; shifts and limit of the cell."""
    hidden = np.float32(2.0**-15 / a.hidden_scale * 2.0**-15)
    exponent = _cell_exponent(scale)
    limit = min(int(np.float32(a.cell_clip) / scale(_CELL)), 32767) if a.cell_clip else 0
    return [*quantize_multiplier(float(hidden)), zero_point, 30 + exponent, 15 + exponent, limit]


def _cell_exponent(scale: Callable[[int], Any]) -> int:
    """The power of two that is the cell's scale."""
    return math.frexp(float(scale(_CELL)))[1] - 1


LOWERINGS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm}
