"""Importing what computes each quantized output from one element of each input."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    COMPUTED,
    EQUALS,
    FUSED,
    INT8,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.float_operands import limits_of
from utvm_deploy.frontend.operators.integers import (
    PLAIN,
    import_plain_arithmetic,
    import_plain_function,
)
from utvm_deploy.frontend.operators.operands import (
    alike,
    clamp_of,
    made,
    quantized,
    quantized_range,
    scale_of,
    zero_point_of,
)
from utvm_deploy.graph.attributes import (
    Add,
    Extremum,
    Gelu,
    LeakyRelu,
    Multiply,
    OfOne,
    Prelu,
    Relu,
    SquaredDifference,
    Subtract,
)
from utvm_deploy.graph.model import Operator, Tensor
from utvm_deploy.graph.rounding import HEADROOM_BITS

_RELU_RANGES: dict[str, tuple[float, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
# The reference has these for 8 bits only.
_RELUS_OF_BYTES = ("RELU_0_TO_1", "RELU_N1_TO_1")
# 1/scale that references demand of outputs.
_OUTPUT_PARTS = {("LOGISTIC", "int8"): 256, ("LOGISTIC", "int16"): 32768, ("TANH", "int16"): 32768}
#: exp() of more is beyond float32.
_MOST_EXPONENT = 700.0
#: Of an output's scale, with room for its zero point.
_MOST_STEPS = 2.0**31 - 256
#: The inverse, in 12 bits less than 1, is what the reference shifts by 31.
_MOST_RSQRT_SCALE = 2.0**12
#: SQUARED_DIFFERENCE has 2**14 steps for the square of twice the larger scale.
_MOST_SQUARE = 2.0**14 * (1 - 2.0**-31)
#: A logarithm that is nearer to an integer than this is that of a power of two.
_NEARLY = np.float32(1e-3)
_MOST_SHIFT = 15
#: HARD_SWISH shrinks values by at least 1/128 before it looks at scales.
_HARD_SWISH_SHRINKS = 128
#: Its relu6(x + 3) / 6 has 2**15 steps for 3, of inputs that have 1/128 of their scale.
_HARD_SWISH_SHARE = 2.0**15 / 3 / _HARD_SWISH_SHRINKS


def import_add(op: SourceOperator) -> Operator:
    """ADD with broadcasting."""
    if op.input(0).dtype in PLAIN:
        return import_plain_arithmetic(op)
    out = _two_inputs(op)
    return made(op, op.inputs[:2], Add(clamp_of(op, out), _sum_shifts(op, out), limits_of(op)))


def import_sub(op: SourceOperator) -> Operator:
    """SUB with broadcasting."""
    if op.input(0).dtype in PLAIN:
        return import_plain_arithmetic(op)
    out = _two_inputs(op)
    return made(op, op.inputs[:2], Subtract(clamp_of(op, out), _sum_shifts(op, out), limits_of(op)))


def import_mul(op: SourceOperator) -> Operator:
    """MUL with broadcasting."""
    if op.input(0).dtype in PLAIN:
        return import_plain_arithmetic(op)
    out = _two_inputs(op)
    return made(op, op.inputs[:2], Multiply(clamp_of(op, out), limits_of(op)))


def import_extremum(op: SourceOperator) -> Operator:
    """MINIMUM and MAXIMUM compare stored values, so they need equal quantizations."""
    if op.input(0).dtype in PLAIN:
        return import_plain_arithmetic(op)
    out = _two_inputs(op)
    if any(op.input(i).quantization != out.quantization for i in (0, 1)):
        raise op.unsupported("its inputs and output are quantized differently; they must be equal")
    return made(op, op.inputs[:2], Extremum())


def import_prelu(op: SourceOperator) -> Operator:
    """PRELU with broadcasting of alpha."""
    for tensor in (op.input(0), op.input(1), op.output()):
        quantized(op, tensor)
    return made(op, op.inputs[:2], Prelu())


def import_relu(op: SourceOperator) -> Operator:
    """RELU and its bounded kin."""
    out = op.output()
    if op.kind in _RELUS_OF_BYTES:
        quantized(op, op.input(0))
    alike(op, op.input(0), out)
    lower, upper = _RELU_RANGES[op.kind]
    limits = (lower, math.inf if upper is None else upper)
    return made(op, op.inputs[:1], Relu(quantized_range(op, out, lower, upper), limits))


def import_leaky_relu(op: SourceOperator) -> Operator:
    """LEAKY_RELU."""
    alike(op, op.input(0), op.output())
    alpha = float(op.option("Alpha"))
    if not math.isfinite(alpha):
        raise op.damaged(f"its alpha is {alpha}")
    return made(op, op.inputs[:1], LeakyRelu(alpha))


def import_squared_difference(op: SourceOperator) -> Operator:
    """SQUARED_DIFFERENCE with broadcasting."""
    if op.input(0).dtype in PLAIN:
        return import_plain_arithmetic(op)
    for tensor in (op.input(0), op.input(1), op.output()):
        quantized(op, tensor)
    largest, made_scale = max(scale_of(op.input(i)) for i in (0, 1)), scale_of(op.output())
    if (2 * largest) ** 2 >= _MOST_SQUARE * made_scale:
        raise op.unsupported(
            f"its output's scale {made_scale:g} is too small for the square of {largest:g}, "
            "which the reference refuses"
        )
    return made(op, op.inputs[:2], SquaredDifference())


def import_gelu(op: SourceOperator) -> Operator:
    """GELU."""
    x, out = _alike(op)
    _check_steps(op, out, _largest(x))
    return made(op, op.inputs[:1], Gelu(bool(op.option("Approximate"))))


def import_exponential(op: SourceOperator) -> Operator:
    """EXP, as far as what it makes is a number of steps that an int32 holds."""
    x, out = _alike(op)
    exponent = scale_of(x) * (x.element.limits[1] - zero_point_of(x))
    _check_steps(op, out, math.exp(min(exponent, _MOST_EXPONENT)))
    return made(op, op.inputs[:1], OfOne())


def import_elu(op: SourceOperator) -> Operator:
    """ELU, which the reference has no kernel for, and LiteRT's default kernels have of bytes."""
    x, out = _one_input(op)
    _check_steps(op, out, max(1.0, _largest(x)))
    return made(op, op.inputs[:1], OfOne())


def import_root(op: SourceOperator) -> Operator:
    """SQRT and RSQRT, which the reference gives up on where its input is negative."""
    x, out = _alike(op) if op.kind == "RSQRT" else _one_input(op)
    least, _ = x.element.limits
    if x.dtype == "int8" and zero_point_of(x) != least:
        raise op.unsupported(
            f"its input '{x.name}' has the zero point {zero_point_of(x)} and may be negative, "
            f"where the reference stops; only {least} is supported"
        )
    root = math.sqrt(scale_of(x))
    if op.kind == "SQRT":
        _check_steps(op, out, math.sqrt(_largest(x)))
    elif root * scale_of(out) >= _MOST_RSQRT_SCALE:
        raise op.unsupported(
            f"its output's scale {scale_of(out):g} makes the reference shift an int by more bits "
            "than it has, which is undefined"
        )
    else:
        # Of bytes, the reference raises the inverse root by as many bits as the factor has.
        _check_steps(op, out, 2 / root)
    return made(op, op.inputs[:1], OfOne())


def import_log(op: SourceOperator) -> Operator:
    """LOG, whose smallest value stands for that of what is not positive."""
    x, out = _alike(op)
    ends = (scale_of(x), _largest(x))
    _check_steps(op, out, max(abs(math.log(end)) for end in ends))
    return made(op, op.inputs[:1], OfOne())


def import_of_one(op: SourceOperator) -> Operator:
    """ABS and NEG."""
    if op.input(0).dtype in PLAIN:
        return import_plain_function(op)
    _alike(op)
    return made(op, op.inputs[:1], OfOne())


def import_sigmoid(op: SourceOperator) -> Operator:
    """LOGISTIC and TANH, which the reference mostly defines for one output scale."""
    x, out = op.input(0), op.output()
    alike(op, x, out)
    parts = _OUTPUT_PARTS.get((op.kind, out.dtype))
    if parts is not None and scale_of(out) != 1 / parts:
        raise op.unsupported(
            f"its output has scale {scale_of(out)}; {out.dtype} {op.kind} is defined for 1/{parts}"
        )
    _check_steps(op, out, 1.0)
    return made(op, op.inputs[:1], OfOne())


def import_hard_swish(op: SourceOperator) -> Operator:
    """HARD_SWISH, as far as the reference takes its scales."""
    x, out = _one_input(op)
    assert x.quantization is not None and out.quantization is not None
    if x.quantization.scale * _HARD_SWISH_SHARE >= 2.0**31:
        raise op.unsupported(
            f"its input's scale {x.quantization.scale:g} makes the reference shift an int by its "
            "sign, which is undefined"
        )
    if x.quantization.scale >= _HARD_SWISH_SHRINKS * out.quantization.scale:
        raise op.unsupported(
            f"its input's scale is {_HARD_SWISH_SHRINKS} times its output's or more, "
            "which the reference refuses"
        )
    return made(op, op.inputs[:1], OfOne())


def _alike(op: SourceOperator) -> tuple[Tensor, Tensor]:
    """Input and output, both int8 or both int16."""
    alike(op, op.input(0), op.output())
    return op.input(0), op.output()


def _one_input(op: SourceOperator) -> tuple[Tensor, Tensor]:
    return quantized(op, op.input(0)), quantized(op, op.output())


def _largest(x: Tensor) -> float:
    """The largest magnitude that a tensor can hold."""
    (least, most), zero_point = x.element.limits, zero_point_of(x)
    return scale_of(x) * max(most - zero_point, zero_point - least)


def _check_steps(op: SourceOperator, out: Tensor, largest: float) -> None:
    """The reference turns a float into an int32 before it limits it to a byte."""
    if not largest / scale_of(out) < _MOST_STEPS:
        raise op.unsupported(
            f"it may make {largest:g}, beyond 2**31 steps of its output's scale "
            f"{scale_of(out):g}, where the reference is undefined"
        )


def _two_inputs(op: SourceOperator) -> Tensor:
    """The output of an operator of two inputs of its type."""
    alike(op, op.input(0), op.input(1), op.output())
    return op.output()


def _sum_shifts(op: SourceOperator, out: Tensor) -> tuple[int, int] | None:
    """What ``_shifts`` says; refuses sums by multipliers that are not below one.

    The reference raises inputs by as many bits as here and then only ever shifts to the right.
    """
    shifts = _shifts(op, out)
    largest = max(scale_of(op.input(i)) for i in (0, 1))
    if shifts is None and 2 * largest >= scale_of(out) * (1 << HEADROOM_BITS[out.dtype]):
        raise op.unsupported(
            f"its output's scale {scale_of(out):g} is too small for inputs of scale {largest:g}: "
            f"the reference is undefined there; quantize it again"
        )
    return shifts


def _shifts(op: SourceOperator, out: Tensor) -> tuple[int, int] | None:
    """By how many bits ADD and SUB shift int16 of scales 2**n, if the file asks for that."""
    if out.dtype != "int16" or not op.option("PotScaleInt16"):
        return None
    powers = [_power_of_two(scale_of(tensor)) for tensor in (op.input(0), op.input(1), out)]
    left, right, made_power = powers
    if left is None or right is None or made_power is None:
        return None
    shifts = (made_power - left, made_power - right)
    if min(shifts) != 0 or max(shifts) > _MOST_SHIFT:
        raise op.unsupported(
            f"its scales are 2**{left}, 2**{right} and 2**{made_power}: one input's must be the "
            f"output's, and the other's up to {_MOST_SHIFT} powers smaller"
        )
    if op.kind == "ADD" and op.input(0).shape != op.input(1).shape:
        raise op.unsupported("its scales are powers of two, for which the reference broadcasts not")
    return shifts


def _power_of_two(scale: float) -> int | None:
    """The power that a scale is, as nearly as the reference asks for, in its float32."""
    power = np.float32(math.log(scale)) * (np.float32(1) / np.float32(math.log(2)))
    nearest = round(float(power))
    return nearest if abs(power - np.float32(nearest)) < _NEARLY else None


_SWISH = "input scale below 128 times the output's"
_STEPS = "every output below 2**31 steps of its scale"
_POSITIVE = "input zero point -128, or 0 of int16"
_BY_SHIFTS = "int16 with PotScaleInt16 and scales of 2**n: one input's the output's, none larger"
_AS_IT_IS = "int32 as it is"
_PLAIN = "int32 and int64 as they are, with NONE"
_WITH_PLAIN = (*COMPUTED, *PLAIN)
#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "ABS": SupportedOperator(import_of_one, (*COMPUTED, "int32"), _AS_IT_IS),
    "ADD": SupportedOperator(
        import_add, _WITH_PLAIN, f"broadcasts; {_BY_SHIFTS}, not broadcast; {FUSED}; {_PLAIN}"
    ),
    "ELU": SupportedOperator(import_elu, INT8, _STEPS),
    "EXP": SupportedOperator(import_exponential, COMPUTED, _STEPS),
    "GELU": SupportedOperator(import_gelu, COMPUTED, _STEPS),
    "HARD_SWISH": SupportedOperator(import_hard_swish, INT8, _SWISH),
    "LEAKY_RELU": SupportedOperator(import_leaky_relu, COMPUTED, ""),
    "LOG": SupportedOperator(import_log, COMPUTED, _STEPS),
    "LOGISTIC": SupportedOperator(
        import_sigmoid, COMPUTED, "output scale 1/256, or 1/32768 of int16"
    ),
    "MAXIMUM": SupportedOperator(import_extremum, _WITH_PLAIN, f"broadcasts; {EQUALS}"),
    "MINIMUM": SupportedOperator(import_extremum, _WITH_PLAIN, f"broadcasts; {EQUALS}"),
    "MUL": SupportedOperator(import_mul, _WITH_PLAIN, f"broadcasts; {FUSED}; {_PLAIN}"),
    "NEG": SupportedOperator(import_of_one, _WITH_PLAIN, "int32 and int64 as they are"),
    "PRELU": SupportedOperator(import_prelu, INT8, "broadcasts"),
    "RELU": SupportedOperator(import_relu, COMPUTED, ""),
    "RELU6": SupportedOperator(import_relu, COMPUTED, ""),
    "RELU_0_TO_1": SupportedOperator(import_relu, INT8, ""),
    "RELU_N1_TO_1": SupportedOperator(import_relu, INT8, ""),
    "RSQRT": SupportedOperator(
        import_root,
        COMPUTED,
        f"{_POSITIVE}; root of the input's scale times the output's below 2**12, their inverse "
        "below 2**30",
    ),
    "SQRT": SupportedOperator(import_root, INT8, f"input zero point -128; {_STEPS}"),
    "SQUARED_DIFFERENCE": SupportedOperator(
        import_squared_difference,
        (*INT8, "int32"),
        f"broadcasts; larger input scale squared below 2**12 times the output's; {_AS_IT_IS}",
    ),
    "SUB": SupportedOperator(
        import_sub, _WITH_PLAIN, f"broadcasts; {_BY_SHIFTS}; {FUSED}; {_PLAIN}"
    ),
    "TANH": SupportedOperator(import_sigmoid, COMPUTED, f"output scale 1/32768 of int16; {_STEPS}"),
}
