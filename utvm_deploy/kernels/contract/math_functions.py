"""The mathematical functions of float32 that generated code calls: which there are, and their C.

They compute with integers and with exact operations. So every compiler and core gets the same
bytes, and no C library is linked. The C is in ``kernels/c/math``; docs/reference/float.md has the
error bound of each function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from utvm_deploy.kernels.contract.c_texts import shared_text

_EXP = ("bits", "exp2")
_LOG = ("bits", "log2", "logf")
_TURNS = ("bits", "turns")
_ROUND = ("bits", "floorf")

#: The name in C99 -> the headers in ``c/math`` that define ``utvm_NAME``, in this order.
MATH_FUNCTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ceilf": _ROUND,
        "copysignf": ("bits", "fabsf"),
        "cosf": (*_TURNS, "sinf"),
        "erff": (*_EXP, "erff"),
        "exp10f": (*_EXP, "exp2f"),
        "exp2f": (*_EXP, "exp2f"),
        "expf": (*_EXP, "expf"),
        "fabsf": ("bits", "fabsf"),
        "floorf": _ROUND,
        "fmodf": ("bits", "fmodf"),
        "log10f": _LOG,
        "log2f": _LOG,
        "logf": _LOG,
        "nearbyintf": _ROUND,
        "powf": (*_EXP, "log2", "powf"),
        "rintf": _ROUND,
        "roundf": _ROUND,
        "rsqrtf": ("bits", "sqrtf", "rsqrtf"),
        "sigmoidf": ("bits", "reciprocal", "exp2", "sigmoidf"),
        "sinf": (*_TURNS, "sinf"),
        "sqrtf": ("bits", "sqrtf"),
        "tanf": ("bits", "reciprocal", "turns", "tanf"),
        "tanhf": ("bits", "reciprocal", "exp2", "tanhf"),
        "truncf": _ROUND,
    }
)

_CALL = re.compile(r"\butvm_(\w+f)\(")


def math_texts(code: str) -> tuple[str, ...]:
    """The C texts that define what ``code`` calls of these functions, each once."""
    called = {name for name in _CALL.findall(code) if name in MATH_FUNCTIONS}
    headers = dict.fromkeys(h for name in sorted(called) for h in MATH_FUNCTIONS[name])
    ordered = sorted(headers, key=_ORDER.index)
    return tuple(shared_text(f"math/{header}") for header in ordered)


def is_double(name: str) -> bool:
    """Whether C's function ``name`` is the float64 form of one of these, such as ``exp``."""
    return f"{name}f" in MATH_FUNCTIONS


#: What others use stands before them.
_SHARED = ("bits", "reciprocal", "exp2", "log2", "turns", "sqrtf")
_ORDER = (
    *_SHARED,
    *sorted({h for headers in MATH_FUNCTIONS.values() for h in headers} - set(_SHARED)),
)
