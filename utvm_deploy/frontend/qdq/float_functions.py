"""Functions of one element that TFLite has no operator of, made of those that it has.

They compute on float32. Formulas 4.4.49 and 7.1.26 are those of Abramowitz and Stegun, "Handbook of
Mathematical Functions" (1964): their errors are below 2e-8 and 1.5e-7, about a step of float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from utvm_deploy.frontend.qdq.functions import Chain, chain
from utvm_deploy.frontend.qdq.job import Emitter, Job
from utvm_deploy.frontend.qdq.values import Quantized

# Twice this factor makes more than 1 of every float32 above zero.
_STEEP = 1e30
# From here on float32 has integers only: adding it to less rounds that to an integer.
_INTEGERS = 2.0**23
# Formula 4.4.49: the coefficients of x, x^3 and so on.
_ATAN = (
    *(1.0, -0.3333314528, 0.1999355085, -0.1420889944, 0.1065626393),
    *(-0.0752896400, 0.0429096138, -0.0161657367, 0.0028662257),
)
# Formula 7.1.26: p, and the coefficients of t, t^2 and so on.
_ERF_P = 0.3275911
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def _step(made: Chain, x: Quantized) -> Quantized:
    """1 above zero, else 0."""
    steep = made.binary("MUL", made.binary("MUL", x, _STEEP), _STEEP)
    return made.binary("MINIMUM", made.binary("MAXIMUM", steep, 0.0), 1.0)


def _sign(made: Chain, x: Quantized) -> Quantized:
    steep = made.binary("MUL", made.binary("MUL", x, _STEEP), _STEEP)
    return made.binary("MINIMUM", made.binary("MAXIMUM", steep, -1.0), 1.0)


def _polynomial(made: Chain, x: Quantized, coefficients: Sequence[float]) -> Quantized:
    """The sum of coefficient i times x to the power of i, by Horner's rule."""
    total = made.binary("MUL", x, coefficients[-1])
    for one in reversed(coefficients[1:-1]):
        total = made.binary("MUL", made.binary("ADD", total, one), x)
    return made.binary("ADD", total, coefficients[0])


def ceil(job: Job) -> Quantized:
    """-floor(-x)."""
    made = chain(job)
    below = made.apply("FLOOR", made.apply("NEG", made.x))
    return made.apply("NEG", below)


def nearest(job: Job) -> Quantized:
    """The nearest integer, and of two the even one."""
    if job.node.integer("decimals", 0):
        raise job.node.unsupported("it rounds to decimals; multiply before, and divide behind it")
    made = chain(job)
    size = made.apply("ABS", made.x)
    rounded = made.binary("SUB", made.binary("ADD", size, _INTEGERS), _INTEGERS)
    is_small = _step(made, made.reversed("SUB", _INTEGERS, size))
    change = made.binary("MUL", made.binary("SUB", rounded, size), is_small)
    return made.binary("MUL", made.binary("ADD", size, change), _sign(made, made.x))


def truncated(job: Job) -> Quantized:
    """The integer part: that of |x|, with the sign of x."""
    made = chain(job)
    whole = made.apply("FLOOR", made.apply("ABS", made.x))
    return made.binary("MUL", whole, _sign(made, made.x))


def sign(job: Job) -> Quantized:
    """-1, 0 or 1."""
    made = chain(job)
    return _sign(made, made.x)


def tangent(job: Job) -> Quantized:
    """sin / cos."""
    made = chain(job)
    cosine = made.apply("COS", made.x)
    return made.binary("DIV", made.apply("SIN", made.x), cosine)


def arc_tangent(job: Job) -> Quantized:
    """By formula 4.4.49; above 1 it is pi / 2 less that of 1 / x."""
    made = chain(job)
    size = made.apply("ABS", made.x)
    ratio = made.binary("DIV", made.binary("MINIMUM", size, 1.0), made.binary("MAXIMUM", size, 1.0))
    square = made.binary("MUL", ratio, ratio)
    angle = made.binary("MUL", _polynomial(made, square, _ATAN), ratio)
    is_large = _step(made, made.binary("SUB", size, 1.0))
    rest = made.reversed("SUB", math.pi / 2, made.binary("MUL", angle, 2.0))
    whole = made.binary("ADD", angle, made.binary("MUL", is_large, rest))
    return made.binary("MUL", whole, _sign(made, made.x))


def error_function(job: Job) -> Quantized:
    """By formula 7.1.26."""
    made = chain(job)
    size = made.apply("ABS", made.x)
    t = made.reversed("DIV", 1.0, made.binary("ADD", made.binary("MUL", size, _ERF_P), 1.0))
    share = made.apply("EXP", made.apply("NEG", made.binary("MUL", size, size)))
    tail = made.binary("MUL", _polynomial(made, t, (0.0, *_ERF)), share)
    return made.binary("MUL", made.reversed("SUB", 1.0, tail), _sign(made, made.x))


def thresholded_relu(job: Job) -> Quantized:
    """x above alpha, else 0."""
    made = chain(job)
    is_above = _step(made, made.binary("SUB", made.x, job.node.number("alpha", 1.0)))
    return made.binary("MUL", made.x, is_above)


def shrink(job: Job) -> Quantized:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    made = chain(job)
    limit, bias = job.node.number("lambd", 0.5), job.node.number("bias", 0.0)
    is_above = _step(made, made.binary("SUB", made.x, limit))
    is_below = _step(made, made.reversed("SUB", -limit, made.x))
    above = made.binary("MUL", made.binary("SUB", made.x, bias), is_above)
    return made.binary("ADD", above, made.binary("MUL", made.binary("ADD", made.x, bias), is_below))


def power_of_two(job: Job) -> Quantized:
    """2 to the power of x."""
    made = chain(job)
    return made.apply("EXP", made.binary("MUL", made.x, math.log(2.0)))


def log_plus_one(job: Job) -> Quantized:
    """log(1 + x)."""
    made = chain(job)
    return made.apply("LOG", made.binary("ADD", made.x, 1.0))


def exp_less_one(job: Job) -> Quantized:
    """exp(x) - 1."""
    made = chain(job)
    return made.binary("SUB", made.apply("EXP", made.x), 1.0)


EMITTERS: Mapping[str, Emitter] = {
    "Atan": arc_tangent,
    "Ceil": ceil,
    "Erf": error_function,
    "Exp2": power_of_two,
    "Expm1": exp_less_one,
    "Log1p": log_plus_one,
    "Round": nearest,
    "Shrink": shrink,
    "Sign": sign,
    "Tan": tangent,
    "Trunc": truncated,
    "ThresholdedRelu": thresholded_relu,
}
FLOAT_ONLY = frozenset(EMITTERS)
