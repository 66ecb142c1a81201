"""Importing arithmetic on integers as they are: their quantization does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import SupportedOperator
from utvm_deploy.frontend.operators.operands import made
from utvm_deploy.graph.attributes import (
    AddN,
    BitwiseXor,
    FloorMod,
    IntegerArithmetic,
    IntegerFunction,
    RightShift,
)
from utvm_deploy.graph.model import Operator

# The reference takes unsigned integers, too.
_OF_BITS = ("int8", "int16", "int32")
# The reference also takes uint16 and uint32, which a graph does not have.
_SHIFTED = ("int8", "uint8", "int16", "int32")
_DIVIDED = ("int8", "int16", "int32", "int64")
#: Types of positions and counts, of which ADD, SUB and MUL compute as they are.
PLAIN = ("int32", "int64")
#: Kind -> those of these types that the reference takes, where it does not take both.
_PLAIN_TYPES = {"ABS": ("int32",), "SIGN": ("int32",), "SQUARED_DIFFERENCE": ("int32",)}
_ADDED = ("int32", "float32")
_QUOTIENTS = ("int32",)


def import_xor(op: SourceOperator) -> Operator:
    """BITWISE_XOR of integers, which may have any quantization or none."""
    _check_one_type(op, _OF_BITS)
    return made(op, op.inputs[:2], BitwiseXor())


def import_plain_arithmetic(op: SourceOperator) -> Operator:
    """ADD, MAXIMUM and others of int32 or int64 without a fused activation."""
    _check_one_type(op, _PLAIN_TYPES.get(op.kind, PLAIN))
    if op.kind in ("ADD", "MUL", "SUB") and op.integer("FusedActivationFunction"):
        raise op.unsupported(
            f"it has a fused activation on {op.output().dtype}; only NONE is supported there"
        )
    return made(op, op.inputs[:2], IntegerArithmetic())


def import_plain_function(op: SourceOperator) -> Operator:
    """ABS, NEG and SIGN of int32 or int64."""
    x, out, types = op.input(0), op.output(), _PLAIN_TYPES.get(op.kind, PLAIN)
    if x.dtype not in types or out.dtype != x.dtype:
        raise op.unsupported(
            f"it makes {out.dtype} of {x.dtype}; of integers that have no scale, only "
            f"{' and '.join(types)} {'are' if len(types) > 1 else 'is'} supported, one type for "
            "input and output"
        )
    return made(op, op.inputs[:1], IntegerFunction())


def import_add_n(op: SourceOperator) -> Operator:
    """ADD_N of tensors of one shape."""
    tensors = [op.input(position) for position in range(len(op.inputs))]
    if len(tensors) < 2:
        raise op.damaged("it has one input; the reference asks for two at least")
    first, *others = tensors
    for tensor in (*others, op.output()):
        if first.dtype not in _ADDED or tensor.dtype != first.dtype:
            raise op.unsupported(
                f"'{first.name}' is {first.dtype} and '{tensor.name}' is {tensor.dtype}; only "
                f"{' and '.join(_ADDED)} are supported, one type for all"
            )
        if tensor.shape != first.shape:
            raise op.damaged(
                f"'{first.name}' has shape {first.shape}, but '{tensor.name}' has {tensor.shape}"
            )
    return made(op, op.inputs, AddN())


def import_right_shift(op: SourceOperator) -> Operator:
    """RIGHT_SHIFT of integers, which may have any quantization or none."""
    _check_one_type(op, _SHIFTED)
    return made(op, op.inputs[:2], RightShift())


def import_floor_mod(op: SourceOperator) -> Operator:
    """FLOOR_MOD of integers, which may have any quantization or none."""
    _check_one_type(op, _DIVIDED)
    _check_divisor(op)
    return made(op, op.inputs[:2], FloorMod())


def import_division(op: SourceOperator) -> Operator:
    """DIV of int32 without a fused activation, cut to the integer that is nearer to 0."""
    if op.input(0).dtype in ("int8", "uint8", "int16"):
        raise op.unsupported(
            "LiteRT's own kernel makes small quotients -128 or 127; multiply by the inverse instead"
        )
    _check_one_type(op, _QUOTIENTS)
    if op.integer("FusedActivationFunction"):
        raise op.unsupported("it has a fused activation on int32; only NONE is supported there")
    _check_divisor(op)
    return made(op, op.inputs[:2], IntegerArithmetic())


def _check_divisor(op: SourceOperator) -> None:
    divisor = op.input(1)
    if divisor.data is not None and not divisor.data.all():
        raise op.unsupported(
            f"its constant divisor '{divisor.name}' has a 0, at which the reference stops"
        )


def _check_one_type(op: SourceOperator, types: Sequence[str]) -> None:
    """Both inputs and the output have the same one of these types."""
    x, y, out = op.input(0), op.input(1), op.output()
    if x.dtype not in types or not x.dtype == y.dtype == out.dtype:
        raise op.unsupported(
            f"it makes {out.dtype} of {x.dtype} and {y.dtype}; only {', '.join(types)} are "
            "supported, one type for inputs and output"
        )


#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "ADD_N": SupportedOperator(import_add_n, _ADDED, "all of one shape"),
    "BITWISE_XOR": SupportedOperator(import_xor, _OF_BITS, "broadcasts"),
    "DIV": SupportedOperator(
        import_division,
        _QUOTIENTS,
        "broadcasts; fused NONE; no constant divisor 0; computed ones of 0 (where the reference "
        "stops) make 0",
    ),
    "FLOOR_MOD": SupportedOperator(
        import_floor_mod,
        _DIVIDED,
        "broadcasts; no constant divisor 0; computed ones of 0 (where the reference stops) make 0",
    ),
    "RIGHT_SHIFT": SupportedOperator(
        import_right_shift,
        _SHIFTED,
        "broadcasts; shifts below 0 are 0, larger ones than the type has bits leave the sign",
    ),
    "SIGN": SupportedOperator(import_plain_function, _PLAIN_TYPES["SIGN"], ""),
}
