"""TFLite operator -> our operator: the table of what is supported, and under which constraints.

An importer checks that the operator is a variant that the kernels compute exactly (element types,
ranks, quantization), resolves its padding and turns its fused activation into a clamp. Shapes are
checked afterwards, by ``graph.check``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from utvm_deploy.frontend import (
    blocks,
    booleans,
    gathering,
    layout,
    pointwise,
    recurrent,
    reductions,
    windowed,
)
from utvm_deploy.frontend.source import Several, SourceOperator
from utvm_deploy.graph.model import Operator

#: Several operators for one of the file: one for each output of a SPLIT.
Importer: TypeAlias = Callable[[SourceOperator], Operator | tuple[Operator, ...] | Several]


@dataclass(frozen=True)
class SupportedOperator:
    """How an operator is imported, and what the file may say of it."""

    importer: Importer
    types: tuple[str, ...]  # element types of what it computes on
    constraints: str  # one line for the user, empty where there are none


_INT8 = ("int8",)
_COMPUTED = ("int8", "int16")
_MOVED = ("int8", "int16", "uint8", "int32", "int64")
_MOVED_OR_TRUE = (*_MOVED, "bool")
_CONVERTED = ("int8", "uint8", "int16")
_BOOL = ("bool",)
_COMPARED = ("int8", "int32", "int64")
_SCALED_BELOW_ONE = "to bool; broadcasts; scales below 1"
_SWISH = "input scale below 128 times the output's"
_FUSED = "fused NONE, RELU, RELU6 or RELU_N1_TO_1"
_WEIGHTS = "constant int8 weights with zero point 0; constant bias of int32, of int64 for int16"
_WEIGHTED = f"{_WEIGHTS}; {_FUSED}"
_OR_SHORT = f"{_WEIGHTS} or int32 by QuantizedBiasType; {_FUSED}"
_STEPS = "every output below 2**31 steps of its scale"
_POSITIVE = "input zero point -128"
_BY_SHIFTS = "int16 with PotScaleInt16 and scales of 2**n: one input's the output's, none larger"
_ONE_FORM = "always one type and shape"
_EQUALS = "inputs and output with equal quantization"
_EQUAL = "input and output with equal quantization"

#: Kind -> how it is imported; the list of what is supported.
IMPORTERS: Mapping[str, SupportedOperator] = {
    "ABS": SupportedOperator(pointwise.import_of_one, _COMPUTED, ""),
    "ADD": SupportedOperator(
        pointwise.import_add, _COMPUTED, f"broadcasts; {_BY_SHIFTS}, not broadcast; {_FUSED}"
    ),
    "ARG_MAX": SupportedOperator(
        reductions.import_arg_extremum, _INT8, "constant axis; to int32 or int64"
    ),
    "ARG_MIN": SupportedOperator(
        reductions.import_arg_extremum, _INT8, "constant axis; to int32 or int64"
    ),
    "ASSIGN_VARIABLE": SupportedOperator(
        recurrent.import_variable, _MOVED_OR_TRUE, f"of a VAR_HANDLE; {_ONE_FORM}"
    ),
    "AVERAGE_POOL_2D": SupportedOperator(
        windowed.import_pool, _COMPUTED, f"NHWC; {_EQUAL}; {_FUSED}"
    ),
    "BATCH_MATMUL": SupportedOperator(
        windowed.import_batch_matmul,
        _COMPUTED,
        "either side computed or constant; batches broadcast; int16 by int16 or by int8 of zero "
        "point 0",
    ),
    "BATCH_TO_SPACE_ND": SupportedOperator(
        blocks.import_batch_to_space,
        _MOVED,
        f"3 or 4 dimensions; constant blocks and crops; {_EQUAL}",
    ),
    "BROADCAST_TO": SupportedOperator(layout.import_broadcast_to, _MOVED_OR_TRUE, "constant shape"),
    "CAST": SupportedOperator(booleans.import_cast, (*_MOVED, *_BOOL), "to any of these"),
    "CONCATENATION": SupportedOperator(
        layout.import_concatenation, _MOVED_OR_TRUE, f"{_EQUALS}; fused NONE"
    ),
    "CONV_2D": SupportedOperator(
        windowed.import_convolution, _COMPUTED, f"NHWC; grouped or not; {_OR_SHORT}"
    ),
    "DEPTHWISE_CONV_2D": SupportedOperator(
        windowed.import_depthwise, _COMPUTED, f"NHWC; any depth multiplier; {_WEIGHTED}"
    ),
    "DEPTH_TO_SPACE": SupportedOperator(blocks.import_depth_to_space, _MOVED, "NHWC"),
    "DEQUANTIZE": SupportedOperator(pointwise.import_dequantize, _CONVERTED, "to float32"),
    "EMBEDDING_LOOKUP": SupportedOperator(
        gathering.import_embedding_lookup,
        _MOVED,
        f"{_EQUAL}; indices of int32, those out of range as in GATHER",
    ),
    "EQUAL": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "EXP": SupportedOperator(pointwise.import_exponential, _COMPUTED, _STEPS),
    "EXPAND_DIMS": SupportedOperator(layout.import_expand_dims, _MOVED_OR_TRUE, "constant axis"),
    "FULLY_CONNECTED": SupportedOperator(windowed.import_fully_connected, _COMPUTED, _OR_SHORT),
    "GATHER": SupportedOperator(
        gathering.import_gather,
        _MOVED_OR_TRUE,
        "computed indices, those out of range (where the reference stops) as the nearest; constant "
        "ones with BatchDims 0 or equal to Axis",
    ),
    "GATHER_ND": SupportedOperator(gathering.import_gather_nd, _MOVED, "constant indices"),
    "GELU": SupportedOperator(pointwise.import_gelu, _COMPUTED, _STEPS),
    "GREATER": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "GREATER_EQUAL": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "HARD_SWISH": SupportedOperator(pointwise.import_hard_swish, _INT8, _SWISH),
    "L2_NORMALIZATION": SupportedOperator(
        reductions.import_l2_normalization,
        _INT8,
        "rows of at most 33,025; output scale 1/128 and zero point 0; fused NONE",
    ),
    "LEAKY_RELU": SupportedOperator(pointwise.import_leaky_relu, _COMPUTED, ""),
    "LESS": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "LESS_EQUAL": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "LOG": SupportedOperator(pointwise.import_log, _COMPUTED, _STEPS),
    "LOGICAL_AND": SupportedOperator(booleans.import_logical, _BOOL, "broadcasts"),
    "LOGICAL_NOT": SupportedOperator(booleans.import_logical, _BOOL, ""),
    "LOGICAL_OR": SupportedOperator(booleans.import_logical, _BOOL, "broadcasts"),
    "LOGISTIC": SupportedOperator(
        pointwise.import_sigmoid, _COMPUTED, "output scale 1/256, or 1/32768 of int16"
    ),
    "LOG_SOFTMAX": SupportedOperator(
        reductions.import_log_softmax,
        _INT8,
        "rows of at most 4,095; input scale above 2**-25; output scale 1/16 and zero point 127",
    ),
    "MAXIMUM": SupportedOperator(pointwise.import_extremum, _COMPUTED, f"broadcasts; {_EQUALS}"),
    "MAX_POOL_2D": SupportedOperator(windowed.import_pool, _COMPUTED, f"NHWC; {_EQUAL}; {_FUSED}"),
    "MEAN": SupportedOperator(reductions.import_mean, _COMPUTED, "constant axes"),
    "MINIMUM": SupportedOperator(pointwise.import_extremum, _COMPUTED, f"broadcasts; {_EQUALS}"),
    "MIRROR_PAD": SupportedOperator(layout.import_mirror_pad, _MOVED, "constant paddings"),
    "MUL": SupportedOperator(pointwise.import_mul, _COMPUTED, f"broadcasts; {_FUSED}"),
    "NEG": SupportedOperator(pointwise.import_of_one, _COMPUTED, ""),
    "NOT_EQUAL": SupportedOperator(booleans.import_comparison, _COMPARED, _SCALED_BELOW_ONE),
    "PACK": SupportedOperator(layout.import_concatenation, _MOVED, ""),
    "PAD": SupportedOperator(layout.import_pad, _COMPUTED, f"constant paddings; {_EQUAL}"),
    "PADV2": SupportedOperator(
        layout.import_pad, _COMPUTED, f"constant paddings and value; {_EQUAL}"
    ),
    "PRELU": SupportedOperator(pointwise.import_prelu, _INT8, "broadcasts"),
    "QUANTIZE": SupportedOperator(
        pointwise.import_quantize,
        (*_CONVERTED, "int32", "float32"),
        "to int8, uint8 or int16; int16 to int8, int16 or int32; int32 to int8 or int16",
    ),
    "READ_VARIABLE": SupportedOperator(
        recurrent.import_variable,
        _MOVED_OR_TRUE,
        f"of a VAR_HANDLE; {_ONE_FORM}; CALL_ONCE must have assigned a constant, unless the model "
        "has assigned something before",
    ),
    "REDUCE_ALL": SupportedOperator(reductions.import_reduce_boolean, _BOOL, "constant axes"),
    "REDUCE_ANY": SupportedOperator(reductions.import_reduce_boolean, _BOOL, "constant axes"),
    "REDUCE_MAX": SupportedOperator(
        reductions.import_reduce_extremum, _COMPUTED, f"constant axes; {_EQUAL}"
    ),
    "REDUCE_MIN": SupportedOperator(
        reductions.import_reduce_extremum, _COMPUTED, f"constant axes; {_EQUAL}"
    ),
    "RELU": SupportedOperator(pointwise.import_relu, _COMPUTED, ""),
    "RELU6": SupportedOperator(pointwise.import_relu, _COMPUTED, ""),
    "RELU_0_TO_1": SupportedOperator(pointwise.import_relu, _INT8, ""),
    "RELU_N1_TO_1": SupportedOperator(pointwise.import_relu, _INT8, ""),
    "RESHAPE": SupportedOperator(layout.import_reshape, _MOVED_OR_TRUE, "constant shape"),
    "RESIZE_BILINEAR": SupportedOperator(
        windowed.import_resize_bilinear, _COMPUTED, "NHWC; constant size"
    ),
    "RESIZE_NEAREST_NEIGHBOR": SupportedOperator(
        layout.import_resize_nearest_neighbor, _MOVED, "NHWC; constant size"
    ),
    "REVERSE_V2": SupportedOperator(layout.import_reverse, _MOVED, "constant axes, side by side"),
    "RSQRT": SupportedOperator(
        pointwise.import_root,
        _INT8,
        f"{_POSITIVE}; root of the input's scale times the output's below 2**12",
    ),
    "SELECT": SupportedOperator(
        booleans.import_select,
        _MOVED,
        f"a condition of bool for all, for each row or element; {_EQUALS}",
    ),
    "SELECT_V2": SupportedOperator(
        booleans.import_select, _MOVED, f"a condition of bool; broadcasts; {_EQUALS}"
    ),
    "SLICE": SupportedOperator(layout.import_slice, _MOVED_OR_TRUE, "constant begin and size"),
    "SOFTMAX": SupportedOperator(
        reductions.import_softmax,
        _COMPUTED,
        "output scale 1/256 and zero point -128, or 1/65536 and -32768 where it makes int16 of "
        "int8; of int16 1/32768 and 0",
    ),
    "SPACE_TO_BATCH_ND": SupportedOperator(
        blocks.import_space_to_batch,
        _MOVED,
        f"3 or 4 dimensions; constant blocks and paddings; {_EQUAL}; int8 or int16 where it pads",
    ),
    "SPACE_TO_DEPTH": SupportedOperator(blocks.import_space_to_depth, _MOVED, "NHWC"),
    "SPLIT": SupportedOperator(layout.import_split, _MOVED, "constant axis"),
    "SPLIT_V": SupportedOperator(layout.import_split_v, _MOVED, "constant sizes and axis"),
    "SQRT": SupportedOperator(pointwise.import_root, _INT8, f"{_POSITIVE}; {_STEPS}"),
    "SQUARED_DIFFERENCE": SupportedOperator(
        pointwise.import_squared_difference,
        _INT8,
        "broadcasts; larger input scale squared below 2**12 times the output's",
    ),
    "SQUEEZE": SupportedOperator(layout.import_squeeze, _MOVED_OR_TRUE, ""),
    "STRIDED_SLICE": SupportedOperator(
        layout.import_strided_slice, _MOVED_OR_TRUE, "constant begin, end and strides; Offset false"
    ),
    "SUB": SupportedOperator(
        pointwise.import_sub, _COMPUTED, f"broadcasts; {_BY_SHIFTS}; {_FUSED}"
    ),
    "SUM": SupportedOperator(
        reductions.import_sum,
        _INT8,
        "constant axes; adds up unsigned bytes, as the reference does, other than MEAN and TFLite "
        "Micro: the same only where no byte of input and result is negative",
    ),
    "SVDF": SupportedOperator(
        recurrent.import_svdf, _INT8, "int8 and int16 weights; int16 state; fused RELU"
    ),
    "TANH": SupportedOperator(
        pointwise.import_sigmoid, _COMPUTED, f"output scale 1/32768 of int16; {_STEPS}"
    ),
    "TILE": SupportedOperator(layout.import_tile, _MOVED_OR_TRUE, "constant multiples"),
    "TRANSPOSE": SupportedOperator(layout.import_transpose, _MOVED_OR_TRUE, "constant permutation"),
    "TRANSPOSE_CONV": SupportedOperator(
        windowed.import_transpose_conv, _COMPUTED, f"NHWC; {_OR_SHORT}"
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": SupportedOperator(
        recurrent.import_lstm,
        _INT8,
        "cell state int16 of scale 2**n; with or without coupled gates, projection, layer "
        "normalization, and peepholes if outputs are as many as cells",
    ),
    "UNPACK": SupportedOperator(layout.import_unpack, _MOVED, ""),
}
