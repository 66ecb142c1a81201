"""Importing operators on booleans: comparisons, AND, OR, NOT, SELECT; and CAST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import (
    BOOL,
    COMPARED,
    EQUALS,
    MOVED,
    SupportedOperator,
)
from utvm_deploy.frontend.operators.operands import (
    MOVABLE,
    boolean,
    made,
    movable,
    quantized,
    scale_of,
)
from utvm_deploy.graph.attributes import EQUALITIES, Boolean
from utvm_deploy.graph.model import Operator, Tensor

_UNSCALED = ("int32", "int64", "float32")
_CAST = (*MOVABLE, "uint32", "bool")


def import_comparison(op: SourceOperator) -> Operator:
    """EQUAL and similar: of quantized values at a common scale, of integers, or of float32."""
    sides = [op.input(0), op.input(1)]
    boolean(op, op.output())
    if {side.dtype for side in sides} == {"int16"}:
        _check_int16(op, sides)
        return made(op, op.inputs[:2], Boolean())
    for side in sides:
        if side.dtype != sides[0].dtype:
            raise op.damaged(f"it compares {sides[0].dtype} with {side.dtype}")
        if side.dtype in _UNSCALED:
            continue
        _check_scale(op, quantized(op, side))
    return made(op, op.inputs[:2], Boolean())


def _check_int16(op: SourceOperator, sides: Sequence[Tensor]) -> None:
    """The reference compares the order of int16 as it is stored, and its equality by the scales."""
    for side in sides:
        quantized(op, side, types=("int16",))
        if op.kind in EQUALITIES:
            _check_scale(op, side)
    if op.kind not in EQUALITIES and sides[0].quantization != sides[1].quantization:
        raise op.unsupported(
            f"it compares '{sides[0].name}' with '{sides[1].name}', which are int16 and quantized "
            "differently; they must be equal, because the reference compares stored values"
        )


def _check_scale(op: SourceOperator, side: Tensor) -> None:
    # The reference then shifts by less than no bits, which is undefined.
    if scale_of(side) >= 1:
        raise op.unsupported(
            f"'{side.name}' has the scale {scale_of(side):g}; only scales below 1 are "
            "supported, as the reference is undefined elsewhere"
        )


def import_logical(op: SourceOperator) -> Operator:
    """LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT."""
    count = 1 if op.kind == "LOGICAL_NOT" else 2
    for tensor in (*(op.input(i) for i in range(count)), op.output()):
        boolean(op, tensor)
    return made(op, op.inputs[:count], Boolean())


def import_select(op: SourceOperator) -> Operator:
    """SELECT and SELECT_V2, which look at no quantization."""
    boolean(op, op.input(0))
    x, y, out = (movable(op, tensor) for tensor in (op.input(1), op.input(2), op.output()))
    if not x.dtype == y.dtype == out.dtype:
        raise op.damaged(f"it makes {out.dtype} of {x.dtype} and {y.dtype}")
    if not x.quantization == y.quantization == out.quantization:
        raise op.unsupported("its inputs and output are quantized differently; they must be equal")
    return made(op, op.inputs[:3], Boolean())


def import_cast(op: SourceOperator) -> Operator:
    """CAST between integers of any quantization, booleans and float32."""
    for tensor in (op.input(0), op.output()):
        if tensor.dtype not in _CAST:
            raise op.unsupported(
                f"tensor '{tensor.name}' is {tensor.dtype}; only {', '.join(_CAST)} are supported"
            )
    return made(op, op.inputs[:1], Boolean())


_SCALED_BELOW_ONE = "to bool; broadcasts; scales below 1"
_ORDERED = f"{_SCALED_BELOW_ONE}; int16 with equal quantization, where every scale is allowed"
#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "CAST": SupportedOperator(
        import_cast,
        _CAST,
        "to any of these; float32 beyond an integer type becomes its nearest number",
    ),
    "EQUAL": SupportedOperator(import_comparison, COMPARED, _SCALED_BELOW_ONE),
    "GREATER": SupportedOperator(import_comparison, COMPARED, _ORDERED),
    "GREATER_EQUAL": SupportedOperator(import_comparison, COMPARED, _ORDERED),
    "LESS": SupportedOperator(import_comparison, COMPARED, _ORDERED),
    "LESS_EQUAL": SupportedOperator(import_comparison, COMPARED, _ORDERED),
    "LOGICAL_AND": SupportedOperator(import_logical, BOOL, "broadcasts"),
    "LOGICAL_NOT": SupportedOperator(import_logical, BOOL, ""),
    "LOGICAL_OR": SupportedOperator(import_logical, BOOL, "broadcasts"),
    "NOT_EQUAL": SupportedOperator(import_comparison, COMPARED, _SCALED_BELOW_ONE),
    "SELECT": SupportedOperator(
        import_select, MOVED, f"a condition of bool for all, for each row or element; {EQUALS}"
    ),
    "SELECT_V2": SupportedOperator(
        import_select, MOVED, f"a condition of bool; broadcasts; {EQUALS}"
    ),
}
