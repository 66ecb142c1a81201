"""The operators that are supported, as data and as the page docs/reference/operators.md."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.frontend.limits import LIMITS
from utvm_deploy.frontend.operators import IMPORTERS
from utvm_deploy.frontend.shape_arithmetic import FOLDED
from utvm_deploy.frontend.suggestions import SUGGESTIONS

_HEAD = """\
# Operators

Generated from the import table; `utvm inspect --supported` prints the same. Every operator computes
what LiteRT 2.3.0's reference kernels do, byte for byte. Shapes are fixed, and ranks go from 1 to 5
unless a constraint says otherwise. A model with operators that are not in the table, or variants
that are not, is refused in one message that names them all, each with its position in the file, the
tensor that it makes, and what to do instead.

| operator | element types | constraints |
|---|---|---|
"""
_FOLDED = """\

What depends on nothing but shapes and constants is computed at import, and gone: moves, and of
whole numbers """
_VARIABLES = """\

Variables become state, which the arena keeps between runs and `NAME_reset()` gives its first values
again: VAR_HANDLE is gone then, and so is CALL_ONCE with the one subgraph that it calls, where
constants may be assigned, and nothing else be done.
"""
_OTHERS = """\

# Not supported

What to do about some that are not. Of the others: cut the model before it and compute it in your
own code.

| operator | instead |
|---|---|
"""
_LIMITS = """\

# Limits

A model file is untrusted: everything that it states is checked before it is used. A file beyond
these limits is refused in one sentence; whatever is in one within them, its import takes less than
10 seconds and 1 GiB of memory.

| at most | of |
|---|---|
"""


@dataclass(frozen=True)
class OperatorRow:
    """One row of the table."""

    operator: str
    types: tuple[str, ...]
    constraints: str


def supported_operators() -> tuple[OperatorRow, ...]:
    """Every operator that can be imported, by name."""
    return tuple(
        OperatorRow(kind, row.types, row.constraints) for kind, row in sorted(IMPORTERS.items())
    )


def operators_page() -> str:
    """The text of docs/reference/operators.md."""
    rows = "".join(
        f"| {row.operator} | {', '.join(row.types)} | {row.constraints} |\n"
        for row in supported_operators()
    )
    limits = "".join(f"| {most:,} | {what} |\n" for what, most in LIMITS)
    folded = f"{_FOLDED}{', '.join(FOLDED)}.\n{_VARIABLES}"
    others = "".join(f"| {kind} | {what} |\n" for kind, what in sorted(SUGGESTIONS.items()))
    return _HEAD + rows + folded + _OTHERS + others + _LIMITS + limits
