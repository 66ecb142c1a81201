"""SVDF of float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of


def lower_svdf(op: Operation) -> KernelCall:
    """SVDF, whose state the arena keeps; it may be written where it is read."""
    before, (_, after), a = op.position(4), op.operator.outputs, op.attributes(Svdf)
    features, times = op.constant(1), op.constant(2)
    batch, (filters, depth), memory = op.source.shape[0], features.shape, times.shape[1]
    has_bias = op.operator.inputs[3] is not None
    given: Parameters = {
        "features": features,
        "times": times,
        "bias": op.constant(3) if has_bias else np.zeros(filters // a.rank, np.float32),
        "state": TensorArgument(before),
        "limits": np.array(a.limits or (-np.inf, np.inf), np.float32),
    }
    kernel = CRoutine(
        "utvm_svdf_float",
        parameters_of(op, given, ("output", "state_after")),
        (batch, depth, filters, memory, a.rank),
        name=f"svdf_float_{batch}x{depth}_f{filters}_m{memory}_r{a.rank}",
        why="generic C, one product at a time",
        c_texts=(shared_text("utvm_svdf_float"),),
    )
    call = op.call(kernel, given, macs=batch * filters * (depth + memory))
    return replace(call, in_place=((after, before),))


FLOAT_LOWERINGS = {"SVDF": lower_svdf}
