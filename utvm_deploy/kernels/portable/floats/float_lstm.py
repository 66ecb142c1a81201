"""UNIDIRECTIONAL_SEQUENCE_LSTM of float32: one C routine with all optional parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from utvm_deploy.graph.attributes import Lstm
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import flags_label, label
from utvm_deploy.kernels.contract.math_functions import math_texts
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of

# The operator's inputs, as ``attributes.Lstm`` lists them. The first four have one for each gate.
_INPUT_WEIGHTS, _HIDDEN_WEIGHTS, _BIASES, _NORMS = 1, 5, 9, 20
_HIDDEN, _CELL, _PROJECTION, _PROJECTION_BIAS = 13, 14, 18, 19
_PEEPHOLES = {0: 15, 1: 16, 3: 17}  # by gate; that of the cell has none
_GATES = 4


def lower_lstm(op: Operation) -> KernelCall:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; a new state may be written where the old one is."""
    a, hidden, cell = op.attributes(Lstm), op.position(_HIDDEN), op.position(_CELL)
    gates = [g for g in range(_GATES) if op.operator.inputs[_INPUT_WEIGHTS + g] is not None]
    outer, inner, inputs = op.source.shape
    steps, batch = (outer, inner) if a.time_major else (inner, outer)
    order, strides = ("time", (batch, 1)) if a.time_major else ("batch", (1, steps))
    cells, outputs = op.constant(_HIDDEN_WEIGHTS + 1).shape
    first_inputs = (_PEEPHOLES[1], _NORMS + 1, _PROJECTION)
    has_peepholes, has_norms, has_projection = (
        op.operator.inputs[i] is not None for i in first_inputs
    )

    def constants(positions: Iterable[int], *, are_there: bool = True) -> Array:
        """Constants one after the other. One element stands for a table that is not needed."""
        if not are_there:
            return np.zeros(1, np.float32)
        return np.concatenate([op.constant(i).reshape(-1) for i in positions])

    has_bias = op.operator.inputs[_PROJECTION_BIAS] is not None
    given: Parameters = {
        "input_weights": constants(_INPUT_WEIGHTS + g for g in gates),
        "hidden_weights": constants(_HIDDEN_WEIGHTS + g for g in gates),
        "bias": constants(_BIASES + g for g in gates),
        "peephole": constants(
            (i for g, i in _PEEPHOLES.items() if g in gates), are_there=has_peepholes
        ),
        "norm": constants((_NORMS + g for g in gates), are_there=has_norms),
        "projection": constants([_PROJECTION], are_there=has_projection),
        "projection_bias": op.constant(_PROJECTION_BIAS)
        if has_bias
        else np.zeros(outputs, np.float32),
        "clips": np.array([a.cell_clip, a.projection_clip], np.float32),
        "hidden_before": TensorArgument(hidden),
        "cell_before": TensorArgument(cell),
    }
    sizes, flags = (batch, steps, inputs, outputs, cells), (has_peepholes, has_norms)
    kinds = flags_label((len(gates) == _GATES, *flags, has_projection))
    text = shared_text("utvm_lstm_float")
    kernel = CRoutine(
        "utvm_lstm_float",
        parameters_of(op, given, ("output", "hidden", "cell")),
        (*sizes, *strides, gates[0], *map(int, flags), int(has_projection)),
        (Operand("gates", (_GATES * cells,), "float32"),),
        name=f"lstm_float_{label(sizes)}_{kinds}_by_{order}",
        why="generic C, one product at a time",
        c_texts=(*math_texts(text), text),
    )
    macs = batch * steps * cells * (len(gates) * (inputs + outputs) + has_projection * outputs)
    _, hidden_after, cell_after = op.operator.outputs
    in_place = ((hidden_after, hidden), (cell_after, cell))
    return replace(op.call(kernel, given, macs=macs), in_place=in_place)


FLOAT_LOWERINGS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm}
