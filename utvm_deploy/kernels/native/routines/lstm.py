"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8: a C routine computes all steps of all sequences.

A layer with four gates and nothing else has a faster routine. The other one takes coupled gates,
peepholes, layer normalization and a projection, in any combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from utvm_deploy.graph.attributes import QuantizedLstm
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.packed_weights import is_packed
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.native.micro_kernel import packed_halves
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
#: Cells whose weights of int4 are unpacked at a time.
_EIGHT = 8
#: The tables of weights.
_SIDES = ("input_weights", "hidden_weights")
_Scale: TypeAlias = Callable[[int], Any]


class _Extras(NamedTuple):
    """Which parts a layer has in addition to its gates."""

    peepholes: bool
    norms: bool
    projection: bool


def lower_lstm(op: Operation) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; a new state may be written where the old one is."""
    a = op.attributes(QuantizedLstm)
    source, hidden, cell = op.source, op.position(_HIDDEN), op.position(_CELL)
    gates = [g for g in range(_GATES) if op.operator.inputs[_INPUT_WEIGHTS + g] is not None]
    first_inputs = (_PEEPHOLES[1], _NORMS + 1, _PROJECTION)
    extras = _Extras(*(op.operator.inputs[i] is not None for i in first_inputs))
    given = _weights(op, gates, has_norms=extras.norms)
    outer, inner, inputs = source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    order, strides = ("time", (batch, 1)) if a.time_major else ("batch", (1, steps))
    _, cells, outputs = given["hidden_weights"].shape
    sizes: tuple[int, ...]
    texts: tuple[str, ...]
    further: tuple[Operand, ...] = ()
    if len(gates) == _GATES and not any(extras):
        sizes, numbers = (batch, steps, inputs, cells), _plain_numbers(op, a)
        name, why = f"{label(sizes[:3])}_{cells}", f"C, {ROWS} cells' products at a time"
        texts, scratch = ("utvm_gates16", "utvm_lstm"), Operand("sums", (2 * cells,), "int32")
        if _are_packed(op):
            name, why = f"{name}_int4", f"{why}, weights unpacked"
            given |= {side: _packed_rows(given[side]) for side in _SIDES}
            further = (Operand("unpacked", (_EIGHT * max(inputs, cells),), "int8"),)
    else:
        sizes = (batch, steps, inputs, outputs, cells)
        numbers = _full_numbers(op, a, gates, extras)
        given |= _tables(op, a, gates, extras)
        name = f"{label(sizes)}_{flags_label((len(gates) == _GATES, *extras))}"
        why = "generic C, one gate at a time"
        texts = ("utvm_gates16", "utvm_inverse_root", "utvm_lstm_full")
        scratch = Operand("row", (cells,), "int8")
    parameters: dict[str, Array | TensorArgument] = {
        **given,
        "numbers": np.array(numbers, np.int32),
        "hidden_before": TensorArgument(hidden),
        "cell_before": TensorArgument(cell),
    }
    c_texts = _packed_texts() if further else tuple(map(shared_text, texts))
    kernel = CRoutine(
        f"{texts[-1]}_int4" if further else texts[-1],
        parameters_of(op, parameters, ("output", "hidden", "cell")),
        (*sizes, *strides),
        (Operand("gates", (_GATES * cells,), "int16"), scratch, *further),
        name=f"lstm_{name}_by_{order}",
        why=why,
        c_texts=c_texts,
        assembly=dot_texts,
    )
    macs = batch * steps * cells * (len(gates) * (inputs + outputs) + extras.projection * outputs)
    call = op.call(kernel, parameters, macs=macs)
    return replace(
        call, in_place=((op.operator.outputs[1], hidden), (op.operator.outputs[2], cell))
    )


def _are_packed(op: Operation) -> bool:
    """Whether all weights are int4. If only some are, all become int8."""
    last = _HIDDEN_WEIGHTS + _GATES
    return all(is_packed(op.input(i).dtype) for i in range(_INPUT_WEIGHTS, last))


def _packed_rows(weights: Array) -> Array:
    """[gate, cell, input] -> packed halves, where each gate has a multiple of eight cells."""
    return packed_halves(np.pad(weights, ((0, 0), (0, -weights.shape[1] % _EIGHT), (0, 0))))


def _packed_texts() -> tuple[str, ...]:
    """The C of a plain layer with weights of int4."""
    start = "(gate * ((cells + 7) / 8) * 4)"
    whole = replaced(
        shared_text("utvm_lstm"),
        ("utvm_lstm(", "utvm_lstm_int4(", 1),
        ("utvm_lstm_step(", "utvm_lstm_step_int4(", 2),
        ("int32_t *sums", "int32_t *sums, int8_t *unpacked", 2),
        ("gates, sums);", "gates, sums, unpacked);", 1),
        ("utvm_dot_rows(", "utvm_dot_halves(", 2),
        ("input_weights + first * inputs,", f"input_weights + {start} * inputs,", 1),
        ("hidden_weights + first * cells,", f"hidden_weights + {start} * cells,", 1),
        ("inputs, cells, sums);", "inputs, cells, sums, unpacked);", 1),
        ("sums + cells);", "sums + cells, unpacked);", 1),
    )
    first, *rest = map(shared_text, ("utvm_gates16", "utvm_unpack_halves", "utvm_dot_halves"))
    return first, *rest, whole


def _weights(op: Operation, gates: Sequence[int], *, has_norms: bool) -> dict[str, Array]:
    """The tables that every layer has. With norms, the biases are in another table."""
    by_input, by_hidden, biases = (
        [op.constant(first + gate) for gate in gates]
        for first in (_INPUT_WEIGHTS, _HIDDEN_WEIGHTS, _BIASES)
    )
    source, state = (quantization_of(op.input(i)) for i in (0, _HIDDEN))
    none = np.zeros_like(biases[0])
    folded = [
        fold_input_offset(none if has_norms else bias, weights, source.zero_point)
        for bias, weights in zip(biases, by_input, strict=True)
    ]
    folded += [fold_input_offset(none, weights, state.zero_point) for weights in by_hidden]
    return {
        "input_weights": np.stack(by_input),
        "hidden_weights": np.stack(by_hidden),
        "bias": np.stack(folded),
    }


def _tables(
    op: Operation, a: QuantizedLstm, gates: Sequence[int], extras: _Extras
) -> dict[str, Array]:
    """The tables of ``utvm_lstm_full`` alone. One element stands for a table that is not needed."""

    def constants(first: int, *, of: Iterable[int] = gates) -> Array:
        return np.stack([op.constant(first + gate) for gate in of])

    tables: dict[str, Array] = {
        "peephole": np.zeros(1, np.int16),
        "norm": np.zeros(1, np.int16),
        "norm_bias": np.zeros(1, np.int32),
        "projection": np.zeros(1, np.int8),
        "projection_bias": np.zeros(1, np.int32),
    }
    if extras.peepholes:
        tables["peephole"] = constants(0, of=[i for g, i in _PEEPHOLES.items() if g in gates])
    if extras.norms:
        tables["norm"], tables["norm_bias"] = constants(_NORMS), constants(_BIASES)
    if extras.projection:
        projection = op.constant(_PROJECTION)
        bias = op.bias(projection.shape[0], _PROJECTION_BIAS)
        tables["projection"] = projection
        # The reference holds what is projected with its zero point negated.
        tables["projection_bias"] = fold_input_offset(bias, projection, -a.hidden_zero_point)
    return tables


def _plain_numbers(op: Operation, a: QuantizedLstm) -> list[int]:
    """What ``utvm_lstm.h`` calls numbers."""
    scale = _scales_of(op)
    gates = [_gate_numbers(scale, gate, np.float32(_GATE_SCALE)) for gate in range(_GATES)]
    return [*chain(*gates), *_state_numbers(scale, a, a.hidden_zero_point)]


def _full_numbers(
    op: Operation, a: QuantizedLstm, gates: Sequence[int], extras: _Extras
) -> list[int]:
    """What ``utvm_lstm_full.h`` calls numbers."""
    scale = _scales_of(op)
    numbers: list[int] = []
    for gate in range(_GATES):
        own = [0] * 9
        if gate in gates:
            made = np.float32(a.gate_scales[gate])
            own[:4] = _gate_numbers(scale, gate, made)
            if extras.peepholes and gate in _PEEPHOLES:
                # The power of two is one of double precision here.
                power = 2.0 ** _cell_exponent(scale)
                ratio = power * float(scale(_PEEPHOLES[gate])) / float(made)
                own[4:6] = quantize_multiplier(float(np.float32(ratio)))
            if extras.norms:
                norm = scale(_NORMS + gate)
                least = max(1, int(np.float32(_VARIANCE_FACTOR) * norm))
                own[6:] = (*quantize_multiplier(float(norm)), least)
        numbers += own
    numbers += _state_numbers(
        scale, a, -a.hidden_zero_point if extras.projection else a.hidden_zero_point
    )
    projected, largest = (0, 0), 0
    if extras.projection:
        ratio = scale(_PROJECTION) * np.float32(a.hidden_scale) / scale(_HIDDEN)
        projected = quantize_multiplier(float(ratio))
        if a.projection_clip:
            largest = min(int(np.float32(a.projection_clip) / np.float32(a.output_scale)), 127)
    zero_point = quantization_of(op.input(_HIDDEN)).zero_point
    return [*numbers, *projected, zero_point, largest, gates[0], gates[0], *map(int, extras)]


def _scales_of(op: Operation) -> _Scale:
    """A function from an input's number to its scale in float32, in which the reference counts."""
    return lambda index: np.float32(quantization_of(op.input(index)).scale)


def _gate_numbers(scale: _Scale, gate: int, made: Any) -> list[int]:
    """Multiplier and shift of the input and of the hidden state, for a gate of scale ``made``."""
    products = (_INPUT_WEIGHTS + gate, 0), (_HIDDEN_WEIGHTS + gate, _HIDDEN)
    ratios = (float(scale(weights) * scale(values) / made) for weights, values in products)
    return [*chain(*map(quantize_multiplier, ratios))]


def _state_numbers(scale: _Scale, a: QuantizedLstm, zero_point: int) -> list[int]:
    """Multiplier, shift and zero point of the hidden state; shifts and limit of the cell."""
    hidden = np.float32(2.0**-15 / a.hidden_scale * 2.0**-15)
    exponent = _cell_exponent(scale)
    limit = min(int(np.float32(a.cell_clip) / scale(_CELL)), 32767) if a.cell_clip else 0
    return [*quantize_multiplier(float(hidden)), zero_point, 30 + exponent, 15 + exponent, limit]


def _cell_exponent(scale: _Scale) -> int:
    """The power of two that is the cell's scale."""
    return math.frexp(float(scale(_CELL)))[1] - 1


LOWERINGS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm}
