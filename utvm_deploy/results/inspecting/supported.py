"""The operators that are supported, as data."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.frontend.operators.importers import FLOAT_IMPORTERS, IMPORTED, IMPORTERS
from utvm_deploy.frontend.qdq.constraints import CONSTRAINTS
from utvm_deploy.frontend.qdq.convert_graph import KNOWN, types_of
from utvm_deploy.frontend.signals.importers import SIGNAL_OPERATORS
from utvm_deploy.frontend.torch.statements import STATEMENTS

_TORCH_TYPES = ("int8", "int16", "float32")


@dataclass(frozen=True)
class OperatorRow:
    """One row of the table."""

    operator: str
    types: tuple[str, ...]
    constraints: str


def supported_operators(form: str = "tflite") -> tuple[OperatorRow, ...]:
    """Every operator that can be imported from files of a format, by name.

    ``form`` is "tflite", "onnx" or "torch". The last two are of quantized files.
    """
    if form == "onnx":
        return tuple(OperatorRow(one, types_of(one), CONSTRAINTS.get(one, "")) for one in KNOWN)
    if form == "torch":
        return tuple(OperatorRow(kind, _TORCH_TYPES, "") for kind in sorted(STATEMENTS))
    return tuple(_row(kind) for kind in sorted(IMPORTED))


def _row(kind: str) -> OperatorRow:
    """An operator's row; its constraints on float32 follow those on the other types."""
    row, of_float = {**IMPORTERS, **SIGNAL_OPERATORS}.get(kind), FLOAT_IMPORTERS.get(kind)
    rows = [one for one in (row, of_float) if one is not None]
    types = tuple(dict.fromkeys(dtype for one in rows for dtype in one.types))
    constraints = rows[0].constraints
    if row is not None and of_float is not None:
        shared = row.constraints.split("; ")
        others = [one for one in of_float.constraints.split("; ") if one and one not in shared]
        if others:
            constraints = "; ".join([*filter(None, shared), f"float32: {'; '.join(others)}"])
    return OperatorRow(kind, types, constraints)
