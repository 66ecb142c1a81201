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
_ANGLES = ("bits", "reciprocal", "atanf")
_ARCS = ("bits", "root", "asinf")
_TURNS = ("bits", "turns")
_ROUND = ("bits", "floorf")

#: The name in C99 -> the headers in ``c/math`` that define ``utvm_NAME``, in this order.
MATH_FUNCTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "acosf": _ARCS,
        "acoshf": (*_LOG, "root", "asinhf"),
        "asinf": _ARCS,
        "asinhf": (*_LOG, "root", "asinhf"),
        "atan2f": _ANGLES,
        "atanf": _ANGLES,
        "atanhf": (*_LOG, "atanhf"),
        "ceilf": _ROUND,
        "copysignf": ("bits", "fabsf"),
        "cosf": (*_TURNS, "sinf"),
        "coshf": (*_EXP, "sinhf"),
        "erfcf": (*_EXP, "reciprocal", "erff", "erfcf"),
        "erff": (*_EXP, "erff"),
        "exp10f": (*_EXP, "exp2f"),
        "exp2f": (*_EXP, "exp2f"),
        "expf": (*_EXP, "expf"),
        "expm1f": (*_EXP, "expm1f"),
        "fabsf": ("bits", "fabsf"),
        "floorf": _ROUND,
        "fmodf": ("bits", "fmodf"),
        "hypotf": ("bits", "root", "hypotf"),
        "log10f": _LOG,
        "log1pf": (*_LOG, "log1pf"),
        "log2f": _LOG,
        "logf": _LOG,
        "nearbyintf": _ROUND,
        "powf": (*_EXP, "log2", "powf"),
        "rintf": _ROUND,
        "roundf": _ROUND,
        "rsqrtf": ("bits", "root", "sqrtf", "rsqrtf"),
        "sigmoidf": ("bits", "reciprocal", "exp2", "sigmoidf"),
        "sinf": (*_TURNS, "sinf"),
        "sinhf": (*_EXP, "sinhf"),
        "sqrtf": ("bits", "root", "sqrtf"),
        "tanf": ("bits", "reciprocal", "turns", "tanf"),
        "tanhf": ("bits", "reciprocal", "exp2", "tanhf"),
        "truncf": _ROUND,
    }
)

_CALL = re.compile(r"\butvm_(\w+f)\(")


def math_texts(code: str, *, needs_bits: bool = False) -> tuple[str, ...]:
    """The C texts that define what ``code`` calls of these functions, each once.

    ``needs_bits``: also those that give the bits of a float.
    """
    called = {name for name in _CALL.findall(code) if name in MATH_FUNCTIONS}
    headers = dict.fromkeys(h for name in sorted(called) for h in MATH_FUNCTIONS[name])
    headers |= {"bits": None} if needs_bits else {}
    ordered = sorted(headers, key=_ORDER.index)
    return tuple(shared_text(f"math/{header}") for header in ordered)


#: What others use precedes them.
_SHARED = ("bits", "root", "reciprocal", "exp2", "log2", "turns", "sqrtf", "erff", "logf")
_ORDER = (
    *_SHARED,
    *sorted({h for headers in MATH_FUNCTIONS.values() for h in headers} - set(_SHARED)),
)

#: Functions of C99's <math.h> that TVM can call and that boards do not have.
MISSING_FUNCTIONS = frozenset(["cbrtf", "ldexpf", "lgammaf", "nextafterf", "tgammaf"])
