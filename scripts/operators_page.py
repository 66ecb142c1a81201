"""Writes docs/reference/operators.md from the tables of the package."""

from __future__ import annotations

import textwrap
from pathlib import Path

from utvm_deploy.frontend.files.limits import LIMITS
from utvm_deploy.frontend.files.suggestions import SUGGESTIONS
from utvm_deploy.frontend.operators.importers import IMPORTED
from utvm_deploy.frontend.shape_arithmetic import FOLDED
from utvm_deploy.frontend.signals.importers import SIGNAL_OPERATORS
from utvm_deploy.oracle.allowances import ALLOWANCES, NO_SHADOW, STEPS
from utvm_deploy.oracle.truths import NAMES, TRUTHS
from utvm_deploy.results.inspecting.supported import supported_operators

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "operators.md"

_HEAD = """\
# Operators

Generated from the import table; `utvm inspect --supported` prints the same. Every operator computes
what LiteRT 2.3.0's reference kernels do, byte for byte. Where these are wrong, the
[table of truth](#table-of-truth) names others. On float32, functions such as EXP have the errors of
[Floating point](float.md) instead. What is not a number may have another sign or payload.
Shapes are fixed, and ranks go from 1 to 5 unless a constraint says otherwise. A model with other
operators, or with variants that are not in the table, is refused. One message names them all: the
position in the file, the tensor that the operator makes, and what to do instead.

| operator | element types | constraints |
|---|---|---|
"""
_FOLDED = """\

Operators that depend only on shapes and constants are computed at import and removed. These are
moves, and these operators on integers:
"""
_VARIABLES = """\

Variables become state, which the arena keeps between runs. `NAME_reset()` sets the first values
again. VAR_HANDLE is removed, and so is each CALL_ONCE with the subgraph that it calls. Such a
subgraph may only assign constants.
"""
_LOOPS = """\

WHILE is unrolled where the number of its steps depends only on constants and shapes. IF becomes one
of its branches where its condition does. A message says how many operators a loop becomes. `verify`
compares the outputs with those of the file itself, and the layers with those of the unrolled file.
More than 4,096 operators are refused, and so is a loop that passes an input on as a later one:
LiteRT overwrites that.

Equal steps become a loop in C, if each of them reads what the one before made. They may come from a
WHILE, from a cell that a converter wrote out, or from a GRU, LSTM or RNN of PyTorch or ONNX.
Weights and code are in flash once, and time grows with the steps. `profile` and `verify` show such
a loop as one layer LOOP. Steps are equal if they compute the same, with the same weights and the
same quantization.
"""
_TRUTHS = """\

# Table of truth

LiteRT's reference kernels lack these operators, or compute them wrongly. Others say which bytes are
right. The emitted C computes those bytes, and `verify`, `evaluate` and the samples of a bundle
expect them. The others get what the reference computed before, and it continues with
their result. Every report names them.

| operator | element types | right are | why |
|---|---|---|---|
"""
#: What the formula of a signal operator is compared with, if not with TFLite Micro.
_SECOND = {"SignalSpectrogram": "NumPy's transforms of float64, within the bound of float32"}
_SHADOW = f"""\

# Float shadow

A kernel may be wrong although all comparisons with it are equal. So `utvm verify` also computes
each quantized operator in float32, from what its quantized inputs mean. Rounding explains
{STEPS:g} steps of the output's scale. The first line of the result names a layer that is further
away, and the exit code is 1 unless `--allow-float-gap` is given. NEG of int8 is such a layer if
its zero point is not 0: all kernels of LiteRT ignore it.

These operators may be further away, because they compute more coarsely:

| operator | element types | why |
|---|---|---|
"""
_NO_SHADOW = """\

These are not compared:

| operator | why |
|---|---|
"""
_SIGNALS = """\

# Signal operators

LiteRT lacks the custom operators of TFLite Micro's signal library, which begin with `Signal`. So
formulas in NumPy (`oracle/signals/`) compute them for `verify`, `evaluate` and the samples of a
bundle. LiteRT computes the other operators of the model. Tests compare the formulas and the C,
byte for byte, with what TFLite Micro itself makes. All numbers are what its C makes on x86-64; its
kernels for Xtensa and Hexagon may differ.

- SignalRfft and SignalIrfft compute as KISS FFT 130, in int16, int32 or float32.
- SignalSpectrogram is an operator of this project: frames times a window, SignalRfft, and, if it is
  said, the squared amounts. Conversions make it.
- A state that TFLite Micro keeps in its own buffers is in the arena. `NAME_reset()` clears it.
- SignalFramer and SignalStacker have an output that says whether the first one counts. TFLite
  Micro does not write the first one while it does not. Here it is 0 then.
- SignalEnergy makes 0 outside of its indices, where TFLite Micro writes nothing.
"""
_OTHERS = """\

# Not supported

The table says what to do about some operators. For all others, cut the model before the operator
and compute it in your code.

| operator | instead |
|---|---|
"""
_LIMITS = """\

# Limits

A model file is untrusted: every value in it is checked before it is used. A file beyond these
limits is refused in one sentence. The import of any other file takes less than a minute and 1 GiB
of memory.

| at most | of |
|---|---|
"""


def _others(kind: str) -> str:
    """An operator that is not supported, or only on float32."""
    return f"{kind} of integers" if kind in IMPORTED else kind


def operators_page() -> str:
    """The text of docs/reference/operators.md."""
    rows = "".join(
        f"| {row.operator} | {', '.join(row.types)} | {row.constraints} |\n"
        for row in supported_operators()
    )
    limits = "".join(f"| {most:,} | {what} |\n" for what, most in LIMITS)
    kinds = textwrap.fill(", ".join(FOLDED), 98)
    folded = f"{_FOLDED}```text\n{kinds}\n```\n{_VARIABLES}{_LOOPS}"
    truths = "".join(
        f"| {one.kind} | {', '.join(one.dtypes)} | {NAMES[one.resolver]} | {one.reason} |\n"
        for one in TRUTHS
    )
    truths += "".join(
        f"| {kind} | {', '.join(row.types)} | our formula in NumPy | LiteRT lacks it; tests compare"
        f" with {_SECOND.get(kind, 'TFLite Micro')} |\n"
        for kind, row in sorted(SIGNAL_OPERATORS.items())
        if kind.startswith("Signal")
    )
    allowed = "".join(
        f"| {one.kind} | {', '.join(one.dtypes)} | {one.reason} |\n" for one in ALLOWANCES
    )
    alone = "".join(f"| {kind} | {why} |\n" for kind, why in sorted(NO_SHADOW.items()))
    shadow = f"{_SHADOW}{allowed}{_NO_SHADOW}{alone}"
    others = "".join(
        f"| {_others(kind)} | {what} |\n" for kind, what in sorted(SUGGESTIONS.items())
    )
    found = _HEAD + rows + folded + _TRUTHS + truths + _SIGNALS + shadow
    return found + _OTHERS + others + _LIMITS + limits


if __name__ == "__main__":
    PAGE.write_text(operators_page())
