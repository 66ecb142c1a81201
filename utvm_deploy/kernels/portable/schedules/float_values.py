"""Formulas on float32 elements that several kernels share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import FLOAT_MAX, Limits
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Operation


def limited(value: Any, limits: Limits) -> Any:
    """A value within limits, as ``std::min(std::max(value, least), most)`` of C++ has it.

    Not TVM's max and min: they differ for NaN and for zeros of different sign.
    """
    if limits is None:
        return value
    least, most = limits
    found = tirx.Var("found", "float32")
    result = found
    if least > -math.inf:
        bound = tirx.const(least, "float32")
        result = tirx.Select(result < bound, bound, result)
    if most < math.inf:
        bound = tirx.const(most, "float32")
        result = tirx.Select(bound < result, bound, result)
    return tirx.Let(found, value, result)


def largest(least: float = -FLOAT_MAX) -> Any:
    """The maximum as ``std::max(found, value)`` has it, which ignores what is not a number."""
    return te.comm_reducer(
        lambda found, value: tirx.Select(found < value, value, found),
        lambda dtype: tirx.const(least, dtype),
        name="largest",
    )


def smallest(most: float = FLOAT_MAX) -> Any:
    """The minimum as ``std::min(found, value)`` has it, which ignores what is not a number."""
    return te.comm_reducer(
        lambda found, value: tirx.Select(value < found, value, found),
        lambda dtype: tirx.const(most, dtype),
        name="smallest",
    )


def number(value: float) -> Any:
    """A constant of float32."""
    return tirx.const(float(np.float32(value)), "float32")


def call(name: str, *values: Any) -> Any:
    """A function of C of float32, such as expf."""
    return tirx.call_pure_extern("float32", name, *values)


def limits_label(limits: Limits) -> str:
    """The limits as the end of a kernel's name: empty for all finite numbers, else such as 0_6."""
    if limits == (-FLOAT_MAX, FLOAT_MAX):
        return ""
    if limits is None:
        return "_unlimited"
    return f"_clamp_{_bound_label(limits[0])}_{_bound_label(limits[1])}"


def _bound_label(bound: float) -> str:
    if abs(bound) == FLOAT_MAX:
        text = "max"
    elif math.isinf(bound):
        text = "inf"
    else:
        # Nine digits are different for different float32 numbers.
        text = f"{abs(bound):.9g}".replace(".", "p").replace("+", "").replace("-", "m")
    return f"m{text}" if bound < 0 else text


def float_bias(op: Operation, channels: int) -> Array:
    """The bias, or zeros, which the reference adds, too."""
    inputs = op.operator.inputs
    if len(inputs) <= 2 or inputs[2] is None:
        return np.zeros(channels, dtype=np.float32)
    return op.constant(2)
