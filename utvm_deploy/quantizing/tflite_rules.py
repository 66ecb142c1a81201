"""How each operator that ai-edge-quantizer leaves float is quantized by our rewriting.

The rules are those of LiteRT's integer kernels. The element types are those of our kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.frontend.operators import IMPORTERS

# How the quantization of the output follows.
FROM_INPUT = "input"  # the operator moves or selects values: as its first float input
SHARED = "shared"  # all inputs get the quantization of the output
CALIBRATED = "calibrated"  # by the calibrated range of the output
FIXED = "fixed"  # the kernel computes with one scale only
NO_OUTPUT = "none"  # the output is not a real number, but a position or a truth value


@dataclass(frozen=True)
class Rule:
    """What one operator needs."""

    output: str
    # For FIXED: scale and zero point of int8.
    scale: float = 0.0
    zero_point: int = 0
    # Of the integer kernel, in the schema's numbering of operator versions.
    version: int = 2
    needs_lowest_zero_point: bool = False  # the input's zero point must be -128


_MOVES = (
    *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "EXPAND_DIMS", "GATHER", "GATHER_ND"),
    *("MAX_POOL_2D", "MIRROR_PAD", "PAD", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE"),
    *("RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH"),
    *("SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
)
_SHARED = ("CONCATENATION", "MAXIMUM", "MINIMUM", "PACK", "PADV2", "SELECT", "SELECT_V2")
_CALIBRATED = (
    *("ABS", "ADD", "EXP", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG", "MEAN", "MUL", "NEG"),
    *("PRELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESIZE_BILINEAR"),
    *("SQUARED_DIFFERENCE", "SUB"),
)
_POSITIONS = (
    *("ARG_MAX", "ARG_MIN", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    "NOT_EQUAL",
)

# ai-edge-quantizer writes these, which RULES cannot describe.
_WITHOUT_RULE = (
    *("AVERAGE_POOL_2D", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("SUM", "TRANSPOSE_CONV"),
)
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


def rule_of(kind: str, dtype: str) -> Rule | None:
    """The rule for an operator on integers of this type; None if it stays float."""
    importer = IMPORTERS.get(kind)
    if importer is None or dtype not in importer.types:
        return None
    return RULES.get(kind)


def quantized_types(kind: str) -> tuple[str, ...]:
    """What activations of an operator can become, of int8 and int16; empty if it stays float."""
    importer = IMPORTERS.get(kind)
    if kind in _WITHOUT_RULE and importer is not None:
        return tuple(dtype for dtype in _TYPES if dtype in importer.types)
    return tuple(dtype for dtype in _TYPES if rule_of(kind, dtype) is not None)
