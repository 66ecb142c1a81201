"""UNIDIRECTIONAL_SEQUENCE_LSTM of int8 for cores with the DSP extension, with four gates alone.

The rows of all gates are one product by input and one by hidden state. Their weights are packed as
those of dense layers (``dense_six_outputs.py``). The gates are those of ``assembly/gates_code.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Buffer, Operand
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.dsp.assembly.dense_six_code import RAW_BYTES, six_outputs_text
from utvm_deploy.kernels.native.dsp.assembly.dense_six_products import SixOutputsForm
from utvm_deploy.kernels.native.dsp.assembly.gates_code import CELLS, gates_table, gates_text
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.kernels.native.dsp.dense_six_outputs import SixOutputs, pack_bias
from utvm_deploy.kernels.native.layer_tables import constants
from utvm_deploy.kernels.native.scaling import (
    LARGEST_SHIFT,
    REACH_LIMIT,
    extremes,
)
from utvm_deploy.records.candidate import COMPACT_MOST
from utvm_deploy.targets.table import CORES, target_of

_GATES = 4
#: Inputs of a turn of the inner loop, and about its cycles for each product.
_TURNS = {16: 0.56, 8: 0.58, 4: 0.63}
_PARAMETERS = """
    const int8_t *vector, int16_t *wide, const int8_t *weights, const int32_t *bias,
    int32_t *output, int32_t inputs, int32_t padded, int32_t outputs
"""
#: Steps of the time whose products by input come first: as many as take these bytes of sums.
_BLOCK_BYTES = 3072
#: The integer bits of a cell for which the exponential was compared.
_CELL_BITS = range(2, 8)
#: The right shifts of a hidden state that the short form can do.
_HIDDEN_SHIFTS = range(1, 31)


def build_lstm(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    kernel, tables = layer.portable.kernel, constants(layer.portable)
    if not isinstance(kernel, CRoutine) or kernel.function != "utvm_lstm":
        return "it has coupled gates, peepholes, norms or a projection"
    if "mve" in target_of(layer.core).families_of(CORES[layer.core]):
        return "Helium multiplies its rows with fewer instructions"
    if wish.compact == COMPACT_MOST:
        return "it takes more flash"
    scaling = _scaling(tables)
    if isinstance(scaling, str):
        return scaling
    weights = [_filled(tables[name]) for name in ("input_weights", "hidden_weights")]
    product = _product([one.shape[1] for one in weights])
    bias = _filled(tables["bias"].reshape(2 * _GATES, -1, 1))
    packed: dict[str, Array] = {
        "input_weights": product.pack_weights(weights[0]),
        "hidden_weights": product.pack_weights(weights[1]),
        "bias": np.concatenate([pack_bias(one) for one in np.split(bias.reshape(-1), 2)]),
        "scaling": scaling,
        "table": gates_table(),
    }
    widest = product.padded(max(one.shape[1] for one in weights))
    rows, (batch, steps, *sizes) = len(weights[0]), kernel.numbers
    block = min(steps, max(_BLOCK_BYTES // (RAW_BYTES * rows), 1))
    scratch = (
        Operand("wide", (widest,), "int16"),
        Operand("sums", (block, 2 * rows), "int32"),
        Operand("kept", (rows // _GATES,), "int32"),
        Operand("shown", (rows // _GATES,), "int8"),
    )
    taken = sum(one.size_bytes for one in scratch)
    if wish.is_open and wish.most_scratch is not None and taken > wish.most_scratch:
        return f"it takes {taken} bytes of scratch"
    others = [one for one in kernel.parameters if str(getattr(one, "name", "")) not in tables]
    given = [one for one in layer.portable.arguments if not isinstance(one, ConstantArgument)]
    made = replace(
        kernel,
        function=f"utvm_lstm_packed_{product.step}",
        parameters=(
            others[0],
            *(Buffer(name, data.dtype.name) for name, data in packed.items()),
            *others[1:],
        ),
        numbers=(batch, steps, block, *map(product.padded, sizes[:2]), *sizes),
        scratch=scratch,
        name=f"{kernel.name}_dsp",
        why="DSP assembly, one product for the rows of all gates, three cells at a time",
        c_texts=(),
        assembly=partial(_texts, product.step),
    )
    arguments = (
        given[0],
        *(ConstantArgument(name, data) for name, data in packed.items()),
        *given[1:],
    )
    return replace(layer.portable, kernel=made, arguments=arguments)


def _product(depths: list[int]) -> SixOutputs:
    """The routine for both products, with the step that takes the fewest cycles."""
    routines = [SixOutputs(per_channel=False, step=step, preload=False) for step in _TURNS]
    return min(routines, key=lambda one: _TURNS[one.step] * sum(map(one.padded, depths)))


def _filled(rows: Array) -> Array:
    """[gate, cell, ...] -> [row, ...], with rows of zeros up to a multiple of ``CELLS``."""
    filled = np.pad(rows, ((0, 0), (0, -rows.shape[1] % CELLS), (0, 0)))
    return filled.reshape(-1, rows.shape[2])


def _scaling(tables: Mapping[str, Array]) -> Array | str:
    """What ``utvm_lstm_packed.h`` calls scaling, or why the short form would not be exact."""
    numbers, bias = tables["numbers"], tables["bias"]
    scales, last = numbers[: 4 * _GATES].reshape(_GATES, 2, 2), numbers[4 * _GATES :]
    weights = *tables["input_weights"], *tables["hidden_weights"]
    short = []
    for gate, source in np.ndindex(_GATES, 2):
        multiplier, shift = (int(one) for one in scales[gate, source])
        rows = _GATES * source + gate
        left, right = max(shift, 0), max(-shift, 0)
        most = max(int(np.abs(end).max()) for end in extremes(bias[rows], weights[rows]))
        if most << left >= REACH_LIMIT or right > LARGEST_SHIFT:
            return f"a sum can reach {most}, with a shift by {shift}"
        short += [left + 1, 31 if right else 32, (1 << right) >> 1, multiplier, right]
    multiplier, left, zero_point, shift, bits, clip = map(int, last)
    if bits not in _CELL_BITS:
        return f"a cell has {bits} integer bits"
    if -left not in _HIDDEN_SHIFTS:
        return f"the hidden state has a shift by {left}"
    limit = (1 << 31) - (clip or 1 << 15)
    cells = [bits - _CELL_BITS[0], 1 << (shift - 1), shift, limit - 1, limit]
    shown = [multiplier, 1 << (-left - 1), -left, zero_point]
    return np.array([*short, *cells, *shown], np.int32)


def gate_sums_text(core: str, step: int) -> str:
    """The C text of ``utvm_gate_sums_STEP``, ordered for a core: a sum is the first of two words.

    ``step`` is as in ``SixOutputs``, whose tables it takes for a multiple of six outputs.
    """
    form = SixOutputsForm(False, step, False, 0, False, is_raw=True)
    return six_outputs_text(core, _PARAMETERS, f"utvm_gate_sums_{step}", form)


def _texts(step: int, core: str) -> tuple[str, ...]:
    return (
        shared_text("utvm_gates16"),
        gate_sums_text(core, step),
        *(gates_text(core, one) for one in ("logistic", "tanh", "cells")),
        replaced(
            helper("utvm_lstm_packed"),
            ("utvm_gate_sums(", f"utvm_gate_sums_{step}(", 2),
            ("utvm_lstm_packed(", f"utvm_lstm_packed_{step}(", 1),
        ),
    )
