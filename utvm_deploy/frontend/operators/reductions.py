"""Importing what reduces along dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    BOOL,
    COMPUTED,
    EQUAL,
    INT8,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.operands import (
    alike,
    axis_of,
    boolean,
    clamp_of,
    made,
    parameter,
    quantized,
    scalar_parameter,
    scale_of,
    zero_point_of,
)
from utvm_deploy.graph.attributes import (
    ArgExtremum,
    CumulativeSum,
    L2Normalization,
    LogSoftmax,
    Mean,
    Reduce,
    Softmax,
    Sum,
)
from utvm_deploy.graph.model import Operator, Tensor
from utvm_deploy.graph.product import factor_of_product, merged_product

# The only output quantization that the softmax of TFLite is defined for, by the types of input and
# output: 1/scale and zero point.
_SOFTMAX_OUTPUTS = {
    ("int8", "int8"): (256, -128),
    ("int8", "int16"): (65536, -32768),
    ("int16", "int16"): (32768, 0),
}
# LiteRT takes a scale that is so near; converters wrote 1/65535 for 1/65536.
_SOFTMAX_TOLERANCE = 0.001
_L2_OUTPUT = (1 / 128, 0)
_LOG_SOFTMAX_OUTPUT = (1 / 16, 127)
# The reference adds up exponentials of at most 1 in Q12.19, and scales differences by more than 1.
_MOST_EXPONENTIALS = 2**12 - 1
_LEAST_LOG_SOFTMAX_SCALE = 2.0**-25
# The reference's multiplications of 64 bits shift left by less than 8 bits.
_FACTOR_LIMIT = 128
# The sum of this many int16 fits an int32.
_MOST_INT16 = 2**16 - 1
_CUMULATED = ("int32", "int64", "float32")
# The sum of this many squares of 255 fits an int32.
_MOST_SQUARES = 2**31 // 255**2


def import_mean(op: SourceOperator) -> Operator:
    """MEAN over constant axes."""
    x = op.input(0)
    alike(op, x, op.output())
    return made(op, op.inputs[:1], Mean(axes_of(op, x)))


def import_sum(op: SourceOperator) -> Operator:
    """SUM over constant axes."""
    x = op.input(0)
    alike(op, x, op.output())
    axes = axes_of(op, x)
    if x.dtype == "int16" and math.prod(x.shape[axis] for axis in axes) > _MOST_INT16:
        raise op.unsupported(
            f"its sums of more than {_MOST_INT16:,} elements of int16 may overflow 32 bits"
        )
    return made(op, op.inputs[:1], Sum(axes))


def import_reduce_extremum(op: SourceOperator) -> Operator:
    """REDUCE_MAX and REDUCE_MIN over constant axes."""
    x, out = op.input(0), op.output()
    alike(op, x, out)
    if x.quantization != out.quantization:
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    return made(op, op.inputs[:1], Reduce(axes_of(op, x)))


def import_product(op: SourceOperator) -> Operator:
    """REDUCE_PROD over constant axes; the reference rescales after each factor."""
    x, out = op.input(0), op.output()
    alike(op, x, out)
    axes = axes_of(op, x)
    extents = merged_product(x.shape, axes)
    if extents is None:
        raise op.unsupported(
            f"its axes {list(axes)} of {x.shape} are not neighbours; multiply along one axis "
            "after the other"
        )
    factor = factor_of_product(scale_of(x), scale_of(out), extents[1])
    if not factor < _FACTOR_LIMIT:
        raise op.unsupported(
            f"its scales multiply each product by {factor:g}; the reference is undefined from "
            f"{_FACTOR_LIMIT} on"
        )
    return made(op, op.inputs[:1], Reduce(axes))


def import_reduce_boolean(op: SourceOperator) -> Operator:
    """REDUCE_ALL and REDUCE_ANY over constant axes."""
    x = boolean(op, op.input(0))
    boolean(op, op.output())
    return made(op, op.inputs[:1], Reduce(axes_of(op, x)))


def import_arg_extremum(op: SourceOperator) -> Operator:
    """ARG_MAX and ARG_MIN along a constant axis."""
    x, out = quantized(op, op.input(0)), op.output()
    if out.dtype not in ("int32", "int64"):
        raise op.unsupported(f"its output is {out.dtype}; only int32 and int64 are supported")
    axis = axis_of(op, scalar_parameter(op, 1, "axis"), len(x.shape))
    return made(op, op.inputs[:1], ArgExtremum(axis))


def axes_of(op: SourceOperator, x: Tensor) -> tuple[int, ...]:
    """The axes that are reduced, sorted, counted from the front."""
    op.option("KeepDims")  # what it says is in the output's shape
    rank = len(x.shape)
    axes = parameter(op, 1, "axes").reshape(-1)
    if axes.size == 0:
        raise op.unsupported("it has no axes to reduce")
    if any(not -rank <= axis < rank for axis in axes):
        raise op.damaged(f"its axes {axes.tolist()} are not dimensions of {x.shape}")
    return tuple(sorted({int(axis) % rank for axis in axes}))


def import_cumsum(op: SourceOperator) -> Operator:
    """CUMSUM along a constant axis, of what is not quantized."""
    x, out = op.input(0), op.output()
    if x.dtype not in _CUMULATED or out.dtype != x.dtype:
        raise op.unsupported(
            f"it makes {out.dtype} of {x.dtype}; only {', '.join(_CUMULATED)} are supported, "
            "of one type for input and output"
        )
    axis = axis_of(op, scalar_parameter(op, 1, "axis"), len(x.shape))
    exclusive, reverse = bool(op.option("Exclusive")), bool(op.option("Reverse"))
    return made(op, op.inputs[:1], CumulativeSum(axis, exclusive, reverse))


def import_softmax(op: SourceOperator) -> Operator:
    """SOFTMAX along the last dimension."""
    x, out = op.input(0), quantized(op, op.output(), types=COMPUTED)
    alike(op, x)
    if (x.dtype, out.dtype) not in _SOFTMAX_OUTPUTS:
        raise op.unsupported(f"it makes {out.dtype} of {x.dtype}, which the reference cannot")
    parts, zero_point = _SOFTMAX_OUTPUTS[x.dtype, out.dtype]
    is_near = abs(scale_of(out) * parts - 1) <= _SOFTMAX_TOLERANCE
    if not is_near or zero_point_of(out) != zero_point:
        raise op.unsupported(
            f"its output has scale {scale_of(out)} and zero point {zero_point_of(out)}; softmax "
            f"from {x.dtype} to {out.dtype} is defined for 1/{parts} and {zero_point}"
        )
    beta = float(op.option("Beta"))
    if not (np.isfinite(beta) and beta > 0):
        raise op.damaged(f"its beta is {beta}, which must be positive and finite")
    return made(op, op.inputs[:1], Softmax(beta))


def import_log_softmax(op: SourceOperator) -> Operator:
    """LOG_SOFTMAX along the last dimension."""
    x, out = quantized(op, op.input(0)), quantized(op, op.output())
    if (scale_of(out), zero_point_of(out)) != _LOG_SOFTMAX_OUTPUT:
        raise op.unsupported(
            f"its output has scale {scale_of(out)} and zero point {zero_point_of(out)}; "
            "int8 LOG_SOFTMAX is defined for 1/16 and 127"
        )
    if scale_of(x) <= _LEAST_LOG_SOFTMAX_SCALE:
        raise op.unsupported(f"its input's scale {scale_of(x):g} is not above 2**-25")
    depth = depth_of(op, x)
    if depth > _MOST_EXPONENTIALS:
        raise op.unsupported(f"its rows of {depth} may overflow; at most {_MOST_EXPONENTIALS:,}")
    return made(op, op.inputs[:1], LogSoftmax())


def import_l2_normalization(op: SourceOperator) -> Operator:
    """L2_NORMALIZATION along the last dimension."""
    out = quantized(op, op.output())
    quantized(op, op.input(0))
    if (scale_of(out), zero_point_of(out)) != _L2_OUTPUT:
        raise op.unsupported(
            f"its output has scale {scale_of(out)} and zero point {zero_point_of(out)}; "
            "int8 L2_NORMALIZATION is defined for 1/128 and 0"
        )
    if clamp_of(op, out) != clamp_of(op, out, number=0):
        raise op.unsupported("it has a fused activation; only NONE is supported")
    depth = depth_of(op, op.input(0))
    if depth > _MOST_SQUARES:
        raise op.unsupported(f"its rows of {depth} may overflow; at most {_MOST_SQUARES}")
    return made(op, op.inputs[:1], L2Normalization())


def depth_of(op: SourceOperator, x: Tensor) -> int:
    """The length of a row."""
    if not x.shape:
        raise op.unsupported(f"tensor '{x.name}' is a single number; it works on rows")
    return x.shape[-1]


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "ARG_MAX": SupportedOperator(import_arg_extremum, INT8, "constant axis; to int32 or int64"),
    "ARG_MIN": SupportedOperator(import_arg_extremum, INT8, "constant axis; to int32 or int64"),
    "CUMSUM": SupportedOperator(import_cumsum, _CUMULATED, "constant axis"),
    "L2_NORMALIZATION": SupportedOperator(
        import_l2_normalization,
        INT8,
        "rows of at most 33,025; output scale 1/128 and zero point 0; fused NONE",
    ),
    "LOG_SOFTMAX": SupportedOperator(
        import_log_softmax,
        INT8,
        "rows of at most 4,095; input scale above 2**-25; output scale 1/16 and zero point 127",
    ),
    "MEAN": SupportedOperator(import_mean, COMPUTED, "constant axes"),
    "REDUCE_ALL": SupportedOperator(import_reduce_boolean, BOOL, "constant axes"),
    "REDUCE_ANY": SupportedOperator(import_reduce_boolean, BOOL, "constant axes"),
    "REDUCE_MAX": SupportedOperator(import_reduce_extremum, COMPUTED, f"constant axes; {EQUAL}"),
    "REDUCE_MIN": SupportedOperator(import_reduce_extremum, COMPUTED, f"constant axes; {EQUAL}"),
    "REDUCE_PROD": SupportedOperator(
        import_product,
        COMPUTED,
        "constant axes, neighbours; input scale below 128 times the root of the output's, of as "
        "many as are multiplied",
    ),
    "SOFTMAX": SupportedOperator(
        import_softmax,
        COMPUTED,
        "output scale 1/256 and zero point -128, or 1/65536 and -32768 where it makes int16 of "
        "int8; of int16 1/32768 and 0",
    ),
    "SUM": SupportedOperator(
        import_sum, COMPUTED, "constant axes; sums of at most 65,535 elements of int16"
    ),
}
