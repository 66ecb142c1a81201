"""Importing what reduces along dimensions."""

from __future__ import annotations

import numpy as np

from utvm_deploy.frontend.operands import (
    made,
    parameter,
    quantized,
    scale_of,
    zero_point_of,
)
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import Mean, Softmax
from utvm_deploy.graph.model import Operator

# The only output quantization that the int8 softmax of TFLite is defined for.
_SOFTMAX_SCALE, _SOFTMAX_ZERO_POINT = 1.0 / 256, -128


def import_mean(op: SourceOperator) -> Operator:
    x = quantized(op, op.input(0))
    quantized(op, op.output())
    op.option("KeepDims")  # what it says is in the output's shape
    rank = len(x.shape)
    axes = parameter(op, 1, "axes").reshape(-1)
    if axes.size == 0:
        raise op.unsupported("it has no axes to reduce")
    if any(not -rank <= axis < rank for axis in axes):
        raise op.damaged(f"its axes {axes.tolist()} are not dimensions of {x.shape}")
    return made(op, op.inputs[:1], Mean(tuple(sorted({int(axis) % rank for axis in axes}))))


def import_softmax(op: SourceOperator) -> Operator:
    quantized(op, op.input(0))
    out = quantized(op, op.output())
    if (scale_of(out), zero_point_of(out)) != (_SOFTMAX_SCALE, _SOFTMAX_ZERO_POINT):
        raise op.unsupported(
            f"its output has scale {scale_of(out)} and zero point {zero_point_of(out)}; "
            f"int8 softmax is defined for 1/256 and {_SOFTMAX_ZERO_POINT}"
        )
    beta = float(op.option("Beta"))
    if not (np.isfinite(beta) and beta > 0):
        raise op.damaged(f"its beta is {beta}, which must be positive and finite")
    return made(op, op.inputs[:1], Softmax(beta))
