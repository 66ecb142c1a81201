"""SVDF: each filter's new feature pushes out its oldest; all are weighted over time and summed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts


def lower_svdf(op: Operation) -> KernelCall:
    """SVDF, whose state the arena keeps; it may be written where it is read."""
    inputs, before = [op.input(index) for index in (0, 1, 2, 4)], op.position(4)
    (output, after), rank = op.operator.outputs, op.attributes(Svdf).rank
    features, times = op.constant(1), op.constant(2)
    batch, (filters, depth), memory = op.source.shape[0], features.shape, times.shape[1]
    # These scales are products and quotients of float32.
    x, by_features, by_times, state, made = (
        np.float32(quantization_of(tensor).scale) for tensor in (*inputs, op.graph.tensors[output])
    )
    feature = quantize_multiplier(float(x * by_features / state))
    result = quantize_multiplier(float(state * by_times / made))
    zero_point = quantization_of(op.source).zero_point
    bias, is_of_bytes = op.bias(filters // rank, 3), times.dtype == np.int8
    state_zero_point = quantization_of(op.input(4)).zero_point
    if is_of_bytes:  # the weights are for what is above the zero point
        weights = times.astype(np.int64).reshape(filters // rank, -1).sum(axis=1)
        bias = (bias - state_zero_point * weights).astype(np.int32)
    given: Parameters = {
        "features": features,
        "offsets": fold_input_offset(np.zeros(filters, np.int32), features, zero_point),
        "times": times,
        "bias": bias,
        "state": TensorArgument(before),
        "feature_multiplier": feature[0],
        "feature_shift": feature[1],
        **({"state_zero_point": state_zero_point} if is_of_bytes else {}),
        "output_multiplier": result[0],
        "output_shift": result[1],
        "output_zero_point": quantization_of(op.graph.tensors[output]).zero_point,
    }
    routine = "utvm_svdf_bytes" if is_of_bytes else "utvm_svdf"
    kernel = CRoutine(
        routine,
        parameters_of(op, given, ("output", "state_after")),
        (batch, depth, filters, memory, rank),
        (Operand("sums", (filters,), "int32"),),
        name=f"svdf{'_bytes' * is_of_bytes}_{batch}x{depth}_f{filters}_m{memory}_r{rank}",
        why=f"C, {ROWS} filters' products at a time",
        c_texts=(shared_text(routine),),
        assembly=dot_texts,
    )
    call = op.call(kernel, given, macs=batch * filters * (depth + memory))
    return replace(call, in_place=((after, before),))


LOWERINGS = {"SVDF": lower_svdf}
