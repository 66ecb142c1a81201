"""Importing what reduces float32 along dimensions, or normalizes rows of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import SupportedOperator
from utvm_deploy.frontend.operators.float_operands import floats
from utvm_deploy.frontend.operators.operands import axis_of, made, scalar_parameter
from utvm_deploy.frontend.operators.reductions import axes_of, depth_of
from utvm_deploy.graph.attributes import (
    ArgExtremum,
    L2Normalization,
    LocalResponse,
    LogSoftmax,
    Mean,
    Reduce,
    Softmax,
    Sum,
)
from utvm_deploy.graph.model import Operator


def import_reduction(op: SourceOperator) -> Operator:
    """MEAN, SUM and the reductions to an extremum or a product, over constant axes."""
    x = op.input(0)
    floats(op, x, op.output())
    axes = axes_of(op, x)
    if op.kind == "MEAN":
        return made(op, op.inputs[:1], Mean(axes))
    return made(op, op.inputs[:1], Sum(axes) if op.kind == "SUM" else Reduce(axes))


def import_arg_extremum(op: SourceOperator) -> Operator:
    """ARG_MAX and ARG_MIN along a constant axis."""
    x, out = op.input(0), op.output()
    floats(op, x)
    if out.dtype not in ("int32", "int64"):
        raise op.unsupported(f"its output is {out.dtype}; only int32 and int64 are supported")
    axis = axis_of(op, scalar_parameter(op, 1, "axis"), len(x.shape))
    return made(op, op.inputs[:1], ArgExtremum(axis))


def import_softmax(op: SourceOperator) -> Operator:
    """SOFTMAX along the last dimension."""
    _rows(op)
    beta = float(op.option("Beta"))
    if not (math.isfinite(beta) and beta > 0):
        raise op.damaged(f"its beta is {beta}, which must be positive and finite")
    return made(op, op.inputs[:1], Softmax(beta))


def import_log_softmax(op: SourceOperator) -> Operator:
    """LOG_SOFTMAX along the last dimension."""
    _rows(op)
    return made(op, op.inputs[:1], LogSoftmax())


def import_l2_normalization(op: SourceOperator) -> Operator:
    """L2_NORMALIZATION along the last dimension."""
    _rows(op)
    if op.integer("FusedActivationFunction") != 0:
        raise op.unsupported("it has a fused activation; only NONE is supported")
    return made(op, op.inputs[:1], L2Normalization())


def import_local_response(op: SourceOperator) -> Operator:
    """LOCAL_RESPONSE_NORMALIZATION over the channels near by."""
    _rows(op)
    radius = op.integer("Radius")
    if radius < 0:
        raise op.damaged(f"its radius is {radius}, which must not be negative")
    values = (float(op.option(name)) for name in ("Bias", "Alpha", "Beta"))
    return made(op, op.inputs[:1], LocalResponse(radius, *values))


def _rows(op: SourceOperator) -> None:
    floats(op, op.input(0), op.output())
    depth_of(op, op.input(0))


_FLOAT32 = ("float32",)
_REDUCTION = SupportedOperator(import_reduction, _FLOAT32, "constant axes")
_ARGUMENT = SupportedOperator(
    import_arg_extremum,
    _FLOAT32,
    "constant axis; to int32 or int64; rows with NaN may have another position",
)
#: What this module imports.
FLOAT_OPERATORS: Mapping[str, SupportedOperator] = {
    "ARG_MAX": _ARGUMENT,
    "ARG_MIN": _ARGUMENT,
    "L2_NORMALIZATION": SupportedOperator(import_l2_normalization, _FLOAT32, "fused NONE"),
    "LOCAL_RESPONSE_NORMALIZATION": SupportedOperator(import_local_response, _FLOAT32, ""),
    "LOG_SOFTMAX": SupportedOperator(import_log_softmax, _FLOAT32, ""),
    "MEAN": _REDUCTION,
    "REDUCE_MAX": _REDUCTION,
    "REDUCE_MIN": _REDUCTION,
    "REDUCE_PROD": _REDUCTION,
    "SOFTMAX": SupportedOperator(import_softmax, _FLOAT32, ""),
    "SUM": _REDUCTION,
}
