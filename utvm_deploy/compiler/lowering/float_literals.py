"""Writes floating-point constants so that C has exactly the values of the IR.

TVM's C generator writes seven digits, but a float needs up to nine, and it writes ``inff`` and
``nanf``, which C does not have. So each constant that it would change becomes a call of a function
without arguments, whose name holds the bits. The text that C needs takes the place of the call.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

#: Type -> its struct format, C's suffix, and NumPy's type.
_FORMATS = {"float32": ("<f", "f", np.float32), "float64": ("<d", "", np.float64)}
_MARK = re.compile(r"utvm_literal_(float32|float64)_([0-9a-f]+)\(\)")


def with_marks(statement: Any) -> Any:
    """The statement with calls in place of the constants that the generator would change."""
    return tvm_ffi.structural_map(statement, (tirx.FloatImm, _marked))


def without_marks(text: str) -> str:
    """The C text with literals in place of the calls."""
    return _MARK.sub(lambda found: _literal(found[1], bytes.fromhex(found[2])), text)


def _marked(constant: Any) -> Any:
    kind, value = str(constant.ty), float(constant.value)
    if kind not in _FORMATS:
        return constant
    form, _, make = _FORMATS[kind]
    exact = make(value)
    if math.isfinite(value) and make(f"{value:.6e}") == exact:
        return constant
    return tirx.call_pure_extern(kind, f"utvm_literal_{kind}_{struct.pack(form, exact).hex()}")


def _literal(kind: str, bits: bytes) -> str:
    form, suffix, make = _FORMATS[kind]
    value = make(struct.unpack(form, bits)[0])
    if np.isnan(value):
        return f"(0.0{suffix} / 0.0{suffix})"
    if np.isinf(value):
        sign = "-" if value < 0 else ""
        return f"({sign}1.0{suffix} / 0.0{suffix})"
    text = np.format_float_scientific(value, unique=True)
    return f"({text}{suffix})" if value < 0 else f"{text}{suffix}"
