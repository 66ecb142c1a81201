"""Formulas on float32 elements that several kernels share."""

from __future__ import annotations

import math
from typing import Any

from utvm_deploy.graph.attributes import Limits
from utvm_deploy.kernels.contract.lazy_tvm import tirx


def limited(value: Any, limits: Limits) -> Any:
    """A value within limits, as ``std::min(std::max(value, least), most)`` of C++ has it.

    Not TVM's max and min: they differ for NaN and for zeros of different sign.
    """
    if limits is None:
        return value
    least, most = limits
    if least > -math.inf:
        bound = tirx.const(least, "float32")
        value = tirx.Select(value < bound, bound, value)
    if most < math.inf:
        bound = tirx.const(most, "float32")
        value = tirx.Select(bound < value, bound, value)
    return value


def limits_label(limits: Limits) -> str:
    """The limits as the end of a kernel's name."""
    if limits is None:
        return ""
    words = [f"{abs(one):g}".replace(".", "p") for one in limits]
    signs = ["m" if one < 0 else "" for one in limits]
    return "_clamp" + "".join(f"_{s}{w}" for s, w in zip(signs, words, strict=True))
