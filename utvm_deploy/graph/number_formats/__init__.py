"""Number formats: each function of a format is there as C and as NumPy.

A format without operations stores: weights are kept in it, and a kernel decodes each to float32
when it reads it. A format with operations computes, too: activations are kept in it. What it lacks
is computed on float32 and encoded.

A format is code: the rule for plug-ins in SECURITY.md holds.
"""

from __future__ import annotations

from utvm_deploy.graph.number_formats.formats import (
    OPERATIONS,
    Function,
    NumberFormat,
    check_format,
)
from utvm_deploy.graph.number_formats.registry import format_of, known_format, register

__all__ = [
    "OPERATIONS",
    "Function",
    "NumberFormat",
    "check_format",
    "format_of",
    "known_format",
    "register",
]
