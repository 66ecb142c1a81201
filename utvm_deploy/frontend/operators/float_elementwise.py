"""Importing what computes each float32 output from one element of each input."""

from __future__ import annotations

import math
from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import FUSED, SupportedOperator
from utvm_deploy.frontend.operators.float_operands import floats, limits_of
from utvm_deploy.frontend.operators.operands import made
from utvm_deploy.graph.attribute_values import NO_CLAMP, Limits
from utvm_deploy.graph.attributes import (
    Add,
    Divide,
    Extremum,
    FloorMod,
    Gelu,
    LeakyRelu,
    Multiply,
    OfOne,
    OfTwo,
    Prelu,
    Relu,
    SquaredDifference,
    Subtract,
)
from utvm_deploy.graph.model import Operator

_RELU_LIMITS: Mapping[str, Limits] = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


def import_of_one(op: SourceOperator) -> Operator:
    """ABS, EXP and other functions of one element."""
    floats(op, op.input(0), op.output())
    return made(op, op.inputs[:1], OfOne())


def import_relu(op: SourceOperator) -> Operator:
    """RELU and its bounded kin."""
    floats(op, op.input(0), op.output())
    return made(op, op.inputs[:1], Relu(NO_CLAMP, _RELU_LIMITS[op.kind]))


def import_leaky_relu(op: SourceOperator) -> Operator:
    """LEAKY_RELU."""
    floats(op, op.input(0), op.output())
    return made(op, op.inputs[:1], LeakyRelu(float(op.option("Alpha"))))


def import_gelu(op: SourceOperator) -> Operator:
    """GELU."""
    floats(op, op.input(0), op.output())
    return made(op, op.inputs[:1], Gelu(bool(op.option("Approximate"))))


def import_arithmetic(op: SourceOperator) -> Operator:
    """ADD, SUB, MUL and DIV with broadcasting and a fused activation."""
    _two_inputs(op)
    limits = limits_of(op)
    if op.kind == "ADD":
        return made(op, op.inputs[:2], Add(NO_CLAMP, limits=limits))
    if op.kind == "SUB":
        return made(op, op.inputs[:2], Subtract(NO_CLAMP, limits=limits))
    if op.kind == "MUL":
        return made(op, op.inputs[:2], Multiply(NO_CLAMP, limits))
    return made(op, op.inputs[:2], Divide(limits))


def import_of_two(op: SourceOperator) -> Operator:
    """Functions of one element of each input, with broadcasting."""
    _two_inputs(op)
    return made(op, op.inputs[:2], _OF_TWO[op.kind])


def import_arc_tangent(op: SourceOperator) -> Operator:
    """ATAN2 of tensors of one shape."""
    x, y = op.input(0), op.input(1)
    if x.shape != y.shape:
        raise op.unsupported(
            f"'{x.name}' has shape {x.shape} and '{y.name}' has {y.shape}; the reference does not "
            "broadcast it"
        )
    return import_of_two(op)


def import_floor_division(op: SourceOperator) -> Operator:
    """FLOOR_DIV and FLOOR_MOD with broadcasting."""
    divisor = op.input(1)
    if divisor.data is not None and not divisor.data.all():
        raise op.unsupported(
            f"its constant divisor '{divisor.name}' has a 0, at which the reference stops"
        )
    return import_of_two(op)


def _two_inputs(op: SourceOperator) -> None:
    floats(op, op.input(0), op.input(1), op.output())


_OF_TWO: Mapping[str, Extremum | SquaredDifference | Prelu | OfTwo | FloorMod] = {
    "ATAN2": OfTwo(),
    "FLOOR_DIV": OfTwo(),
    "FLOOR_MOD": FloorMod(),
    "MAXIMUM": Extremum(),
    "MINIMUM": Extremum(),
    "POW": OfTwo(),
    "PRELU": Prelu(),
    "SQUARED_DIFFERENCE": SquaredDifference(),
}
_OF_ONE = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG"),
    *("ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH"),
)
_FLOAT32 = ("float32",)
_DIVISOR = "broadcasts; no constant divisor 0"
#: What this module imports.
FLOAT_OPERATORS: Mapping[str, SupportedOperator] = {
    **dict.fromkeys(_OF_ONE, SupportedOperator(import_of_one, _FLOAT32, "")),
    **dict.fromkeys(_RELU_LIMITS, SupportedOperator(import_relu, _FLOAT32, "")),
    **dict.fromkeys(
        ("ADD", "DIV", "MUL", "SUB"),
        SupportedOperator(import_arithmetic, _FLOAT32, f"broadcasts; {FUSED}"),
    ),
    **dict.fromkeys(
        ("MAXIMUM", "MINIMUM", "POW", "PRELU", "SQUARED_DIFFERENCE"),
        SupportedOperator(import_of_two, _FLOAT32, "broadcasts"),
    ),
    "ATAN2": SupportedOperator(import_arc_tangent, _FLOAT32, "both of one shape"),
    "FLOOR_DIV": SupportedOperator(import_floor_division, _FLOAT32, _DIVISOR),
    "FLOOR_MOD": SupportedOperator(import_floor_division, _FLOAT32, _DIVISOR),
    "GELU": SupportedOperator(import_gelu, _FLOAT32, ""),
    "LEAKY_RELU": SupportedOperator(import_leaky_relu, _FLOAT32, ""),
}
