"""How each operator that ai-edge-quantizer leaves float is quantized by our rewriting.

The rules are those of LiteRT's integer kernels. The element types are those of our kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.frontend.operators.importers import IMPORTERS

# How the quantization of the output follows.
FROM_INPUT = "input"  # the operator moves or selects values: as its first float input
SHARED = "shared"  # all inputs get the quantization of the output
CALIBRATED = "calibrated"  # by the calibrated range of the output
FIXED = "fixed"  # the kernel computes with one scale only
NO_OUTPUT = "none"  # the output is not a real number, but a position or a bool


@dataclass(frozen=True)
class Rule:
    """What one operator needs."""

    output: str
    # For FIXED: scale and zero point of int8.
    scale: float = 0.0
    zero_point: int = 0
    needs_lowest_zero_point: bool = False  # the zero point of an int8 input must be -128


_MOVES = (
    *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "EXPAND_DIMS", "GATHER", "GATHER_ND"),
    *("MAX_POOL_2D", "MIRROR_PAD", "PAD", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE"),
    # LiteRT interpolates the stored values, and does not look at the scale of the result.
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND"),
    *("SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE"),
    *("TRANSPOSE", "UNPACK"),
)
_SHARED = (
    *("CONCATENATION", "DYNAMIC_UPDATE_SLICE", "MAXIMUM", "MINIMUM", "PACK", "PADV2", "SELECT"),
    "SELECT_V2",
)
_CALIBRATED = (
    *("ABS", "ADD", "BATCH_MATMUL", "ELU", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG"),
    *("MEAN", "MUL", "PRELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"),
    *("SQUARED_DIFFERENCE", "SUB"),
)
_POSITIONS = (
    *("ARG_MAX", "ARG_MIN", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    "NOT_EQUAL",
)

# ai-edge-quantizer writes these, which RULES cannot describe.
_WITHOUT_RULE = (
    *("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
)
# Float operators -> what ``tflite_equivalents`` makes of them; of DIV, if the divisor is constant.
_EQUIVALENTS = {"DIV": "MUL", "NEG": "MUL", "SQUARE": "MUL", "SUM": "MEAN"}
_TYPES = ("int8", "int16")

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_MOVES, Rule(FROM_INPUT)),
    **dict.fromkeys(_SHARED, Rule(SHARED)),
    **dict.fromkeys(_CALIBRATED, Rule(CALIBRATED)),
    **dict.fromkeys(_POSITIONS, Rule(NO_OUTPUT)),
    "RSQRT": Rule(CALIBRATED, needs_lowest_zero_point=True),
    "SQRT": Rule(CALIBRATED, needs_lowest_zero_point=True),
    "LOGISTIC": Rule(FIXED, 1 / 256, -128),
    "SOFTMAX": Rule(FIXED, 1 / 256, -128),
    "TANH": Rule(FIXED, 1 / 128, 0),
    "LOG_SOFTMAX": Rule(FIXED, 16 / 256, 127),
    "L2_NORMALIZATION": Rule(FIXED, 1 / 128, 0),
}
#: The scale of FIXED outputs of int16, whose zero point is 0.
FIXED_INT16_SCALE = 1 / 32768


# Kernels of LiteRT that refuse a type. That of SUM reads unsigned bytes.
_NOT_IN_LITERT = frozenset(
    {
        *(("DEPTH_TO_SPACE", "int16"), ("SPACE_TO_DEPTH", "int16")),
        *(("SUM", "int8"), ("SUM", "int16")),
    }
)
# ai-edge-quantizer fails on constants of another rank than the output has. It gives a constant of
# BATCH_MATMUL a scale for each channel, which no integer kernel takes.
_NOT_BY_AEQ = frozenset({*_SHARED, "BATCH_MATMUL"} - {"CONCATENATION"})


def is_integer_kind(kind: str, dtype: str) -> bool:
    """Whether an operator can compute on integers of this type."""
    importer = IMPORTERS.get(kind)
    if importer is None or (kind, dtype) in _NOT_IN_LITERT:
        return False
    return dtype in importer.types


def is_for_aeq(kind: str, dtype: str) -> bool:
    """Whether an operator is left to ai-edge-quantizer, if it knows it."""
    return is_integer_kind(kind, dtype) and kind not in _NOT_BY_AEQ


def rule_of(kind: str, dtype: str) -> Rule | None:
    """The rule for an operator on integers of this type; None if it stays float."""
    return RULES.get(kind) if is_integer_kind(kind, dtype) else None


def quantized_types(kind: str) -> tuple[str, ...]:
    """What activations of a float operator can become; empty if it stays float."""
    kind = _EQUIVALENTS.get(kind, kind)
    return tuple(
        dtype
        for dtype in _TYPES
        if is_integer_kind(kind, dtype) and (kind in RULES or kind in _WITHOUT_RULE)
    )
