"""How far the reference may be from float32 by design, operator by operator.

Rounding explains two steps of the output's scale. These operators compute more coarsely, or have
no float computation to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: How far a result may be from float32, in steps of its scale.
STEPS = 2.0


@dataclass(frozen=True)
class Allowance:
    """Further steps for the results of an operator on some types, by their shape and type."""

    kind: str
    dtypes: tuple[str, ...]
    steps: Callable[[Sequence[int], str], float]
    reason: str


def _of_resize(shape: Sequence[int], dtype: str) -> float:
    """Each position is off by half of 1/1024 for each row or column before it."""
    limits = np.iinfo(dtype)
    off = sum(0.5 * extent + 1 for extent in shape[1:3]) / 1024
    return float((int(limits.max) - int(limits.min)) * min(off, 1))


ALLOWANCES = (
    Allowance(
        "RESIZE_BILINEAR",
        ("int8", "int16"),
        _of_resize,
        "positions are multiples of 1/1024, whose errors add up along rows and columns",
    ),
    Allowance(
        "SOFTMAX",
        ("int16",),
        lambda shape, _: 2.2 * shape[-1],
        "exponentials of a table of 513 entries are off by two steps each",
    ),
    Allowance(
        "LOGISTIC", ("int16",), lambda *_: 1.0, "straight lines between 256 entries of a table"
    ),
    Allowance("TANH", ("int16",), lambda *_: 2.0, "straight lines between 256 entries of a table"),
)

_ON_INTEGERS = "it works on integers, without their scales"
_TABLE = "straight lines between 513 entries of a table, which may be coarse for the function"
#: Operators without a shadow, or their name and a type, and why.
NO_SHADOW: Mapping[str, str] = {
    **dict.fromkeys(("BITWISE_XOR", "CAST", "FLOOR_DIV", "FLOOR_MOD", "RIGHT_SHIFT"), _ON_INTEGERS),
    **dict.fromkeys(("EXP int16", "GELU int16", "LOG int16", "RSQRT int16"), _TABLE),
    "READ_VARIABLE": "it only copies",
    "REDUCE_PROD": "each product is rounded to a step, so that small ones are lost",
    "SVDF": "its state is cut to int16, which float32 does not do",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "its gates and its cell have scales that no tensor states",
}


def allowed_steps(kind: str, dtype: str, shape: Sequence[int]) -> float:
    """How far the result of an operator may be from float32, in steps."""
    rows = (one for one in ALLOWANCES if one.kind == kind and dtype in one.dtypes)
    return STEPS + sum(one.steps(shape, dtype) for one in rows)


def no_shadow(kind: str, dtype: str) -> str | None:
    """Why an operator whose first input has this type is not compared; None if it is."""
    return NO_SHADOW.get(kind, NO_SHADOW.get(f"{kind} {dtype}"))
