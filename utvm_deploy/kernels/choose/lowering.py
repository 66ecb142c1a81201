"""Operator -> kernel call: the table of what can be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.cores.core import CORES, Core
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import why_only_generic
from utvm_deploy.kernels.native.dsp.int16_multiply import wide_multiply_call
from utvm_deploy.kernels.native.dsp.lowering import DSP_LOWERINGS
from utvm_deploy.kernels.native.layer_tables import FamilyLowering
from utvm_deploy.kernels.native.mve.lowering import MVE_INT16_LOWERINGS, MVE_LOWERINGS
from utvm_deploy.kernels.native.routines.batch_matmul import lower_batch_matmul
from utvm_deploy.kernels.native.routines.int16x8 import lower_wide_convolution, lower_wide_dense
from utvm_deploy.kernels.native.routines.log_softmax import lower_log_softmax
from utvm_deploy.kernels.native.routines.lstm import lower_lstm
from utvm_deploy.kernels.native.routines.lstm_variants import is_plain, lower_full_lstm
from utvm_deploy.kernels.native.routines.resize import lower_resize_bilinear
from utvm_deploy.kernels.native.routines.softmax import lower_softmax
from utvm_deploy.kernels.native.routines.svdf import lower_svdf
from utvm_deploy.kernels.native.thumb.lowering import THUMB_LOWERINGS
from utvm_deploy.kernels.portable.booleans import lower_cast, lower_comparison, lower_select
from utvm_deploy.kernels.portable.conv2d import lower_conv2d
from utvm_deploy.kernels.portable.conversions import (
    lower_dequantize,
    lower_quantize,
    lower_relu_int16,
)
from utvm_deploy.kernels.portable.depthwise import lower_depthwise
from utvm_deploy.kernels.portable.elementwise import (
    lower_add,
    lower_extremum,
    lower_multiply,
    lower_prelu,
    lower_squared_difference,
)
from utvm_deploy.kernels.portable.fully_connected import lower_fully_connected
from utvm_deploy.kernels.portable.gather import lower_gather
from utvm_deploy.kernels.portable.int16_activations import lower_sigmoid, lower_softmax_int16
from utvm_deploy.kernels.portable.int16_unary import (
    lower_interpolated,
    lower_negated,
    lower_two_slopes,
)
from utvm_deploy.kernels.portable.l2_normalization import lower_l2_normalization
from utvm_deploy.kernels.portable.layout import lower_concatenation, lower_rearrange
from utvm_deploy.kernels.portable.lookup import lower_lookup
from utvm_deploy.kernels.portable.loop_shapes import chosen_call
from utvm_deploy.kernels.portable.mean import lower_mean
from utvm_deploy.kernels.portable.movement import lower_pad, lower_reshape, lower_variable
from utvm_deploy.kernels.portable.pool import lower_pool
from utvm_deploy.kernels.portable.reduce import lower_arg_extremum, lower_reduce_extremum
from utvm_deploy.kernels.portable.transpose_conv import lower_transpose_conv
from utvm_deploy.records.candidate import GENERIC, Candidate

Lowering = Callable[[Graph, Operator], KernelCall]


def _lower_any_lstm(graph: Graph, operator: Operator) -> KernelCall:
    return (lower_lstm if is_plain(operator) else lower_full_lstm)(graph, operator)


LOWERINGS: Mapping[str, Lowering] = {
    "ABS": lower_lookup,
    "ADD": lower_add,
    "ARG_MAX": lower_arg_extremum,
    "ARG_MIN": lower_arg_extremum,
    "ASSIGN_VARIABLE": lower_variable,
    "AVERAGE_POOL_2D": lower_pool,
    "BATCH_MATMUL": lower_batch_matmul,
    "BATCH_TO_SPACE_ND": lower_rearrange,
    "BROADCAST_TO": lower_rearrange,
    "CAST": lower_cast,
    "CONCATENATION": lower_concatenation,
    "CONV_2D": lower_conv2d,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "DEPTH_TO_SPACE": lower_rearrange,
    "DEQUANTIZE": lower_dequantize,
    "EMBEDDING_LOOKUP": lower_gather,
    "EQUAL": lower_comparison,
    "EXP": lower_lookup,
    "EXPAND_DIMS": lower_reshape,
    "FULLY_CONNECTED": lower_fully_connected,
    "GATHER": lower_gather,
    "GATHER_ND": lower_rearrange,
    "GELU": lower_lookup,
    "GREATER": lower_comparison,
    "GREATER_EQUAL": lower_comparison,
    "HARD_SWISH": lower_lookup,
    "L2_NORMALIZATION": lower_l2_normalization,
    "LEAKY_RELU": lower_lookup,
    "LESS": lower_comparison,
    "LESS_EQUAL": lower_comparison,
    "LOG": lower_lookup,
    "LOGICAL_AND": lower_comparison,
    "LOGICAL_NOT": lower_cast,
    "LOGICAL_OR": lower_comparison,
    "LOGISTIC": lower_lookup,
    "LOG_SOFTMAX": lower_log_softmax,
    "MAXIMUM": lower_extremum,
    "MAX_POOL_2D": lower_pool,
    "MEAN": lower_mean,
    "MINIMUM": lower_extremum,
    "MIRROR_PAD": lower_rearrange,
    "MUL": lower_multiply,
    "NEG": lower_lookup,
    "NOT_EQUAL": lower_comparison,
    "PACK": lower_concatenation,
    "PAD": lower_pad,
    "PADV2": lower_pad,
    "PRELU": lower_prelu,
    "QUANTIZE": lower_quantize,
    "READ_VARIABLE": lower_variable,
    "REDUCE_ALL": lower_reduce_extremum,
    "REDUCE_ANY": lower_reduce_extremum,
    "REDUCE_MAX": lower_reduce_extremum,
    "REDUCE_MIN": lower_reduce_extremum,
    "RELU": lower_lookup,
    "RELU6": lower_lookup,
    "RELU_0_TO_1": lower_lookup,
    "RELU_N1_TO_1": lower_lookup,
    "RESHAPE": lower_reshape,
    "RESIZE_BILINEAR": lower_resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": lower_rearrange,
    "REVERSE_V2": lower_rearrange,
    "RSQRT": lower_lookup,
    "SELECT": lower_select,
    "SELECT_V2": lower_select,
    "SLICE": lower_rearrange,
    "SOFTMAX": lower_softmax,
    "SPACE_TO_BATCH_ND": lower_rearrange,
    "SPACE_TO_DEPTH": lower_rearrange,
    "SPLIT": lower_rearrange,
    "SPLIT_V": lower_rearrange,
    "SQRT": lower_lookup,
    "SQUARED_DIFFERENCE": lower_squared_difference,
    "SQUEEZE": lower_reshape,
    "STRIDED_SLICE": lower_rearrange,
    "SUB": lower_add,
    "SUM": lower_mean,
    "SVDF": lower_svdf,
    "TANH": lower_lookup,
    "TILE": lower_rearrange,
    "TRANSPOSE": lower_rearrange,
    "TRANSPOSE_CONV": lower_transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lower_any_lstm,
    "UNPACK": lower_rearrange,
}


#: What is computed in another way on int16 activations.
INT16_LOWERINGS: Mapping[str, Lowering] = {
    "ABS": lower_two_slopes,
    "CONV_2D": lower_wide_convolution,
    "DEPTHWISE_CONV_2D": lower_wide_convolution,
    "EXP": lower_interpolated,
    "FULLY_CONNECTED": lower_wide_dense,
    "GELU": lower_interpolated,
    "LEAKY_RELU": lower_two_slopes,
    "LOG": lower_interpolated,
    "LOGISTIC": lower_sigmoid,
    "NEG": lower_negated,
    "RELU": lower_relu_int16,
    "RELU6": lower_relu_int16,
    "SOFTMAX": lower_softmax_int16,
    "TANH": lower_sigmoid,
}


#: Families beside the generic one, best first: which cores have them, and what they can do.
FAMILIES: Mapping[str, tuple[Callable[[Core], bool], Mapping[str, FamilyLowering]]] = {
    "mve": (lambda core: core.mve, MVE_LOWERINGS),
    "dsp": (lambda core: core.dsp, DSP_LOWERINGS),
    "thumb": (lambda core: core.is_arm and not core.dsp, THUMB_LOWERINGS),
}

#: What families have for int16 activations.
INT16_FAMILIES: Mapping[str, Mapping[str, FamilyLowering]] = {
    "dsp": {"MUL": lambda graph, operator, call, core, candidate: wide_multiply_call(call)},
    "mve": MVE_INT16_LOWERINGS,
}


def families_for(core: str) -> tuple[str, ...]:
    """The families that a core has, best first, the generic one last."""
    facts = CORES.get(core)
    special = [name for name, (fits, _) in FAMILIES.items() if facts is not None and fits(facts)]
    return (*special, GENERIC)


def lower(
    graph: Graph, operator: Operator, core: str = GENERIC, candidate: Candidate | None = None
) -> KernelCall:
    """The kernel that does what ``operator`` does, and its arguments in this graph.

    ``core`` names the core whose kernels to use where there are any for the case; "generic" stands
    for every core. ``candidate`` says which, and how; without one the best family that has a kernel
    chooses. A candidate that does not fit raises UnsupportedOperator with the reason.
    """
    lowering = LOWERINGS.get(operator.kind)
    if lowering is None:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedOperator(f"no kernel for operator {operator.kind}; there are {known}")
    if _is_int16(graph, operator):
        lowering = INT16_LOWERINGS.get(operator.kind, lowering)
    call = lowering(graph, operator)
    if candidate is not None:
        return _lower_as(candidate, graph, operator, call, core)
    for family in families_for(core):
        found = _in_family(family, graph, operator, call, core, None)
        if isinstance(found, KernelCall):
            return found
        if found and not call.why_not:
            call = replace(call, why_not=f"no {family.upper()} kernel: {found}")
    return call


def _is_int16(graph: Graph, operator: Operator) -> bool:
    """Whether it works on int16 activations."""
    source = operator.inputs[0]
    return source is not None and graph.tensors[source].dtype == "int16"


def _lower_as(
    candidate: Candidate, graph: Graph, operator: Operator, call: KernelCall, core: str
) -> KernelCall:
    """The call of just this candidate."""
    families = families_for(core)
    if candidate.family not in families:
        raise UnsupportedOperator(
            f"core {core} has no kernels of family {candidate.family!r}; "
            f"it has {', '.join(families)}"
        )
    if candidate.family == GENERIC:
        return chosen_call(call, candidate)
    found = _in_family(candidate.family, graph, operator, call, core, candidate)
    if isinstance(found, str):
        why = found or "the family has none"
        raise UnsupportedOperator(f"no kernel {candidate.label!r} for {operator.kind}: {why}")
    return found


def _in_family(
    family: str,
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    core: str,
    candidate: Candidate | None,
) -> KernelCall | str:
    """The family's call instead of the generic one, or why there is none."""
    if family == GENERIC:
        return call
    lowering = FAMILIES[family][1].get(operator.kind)
    is_int16 = _is_int16(graph, operator)
    if is_int16:
        lowering = INT16_FAMILIES.get(family, {}).get(operator.kind)
    why = "" if is_int16 and lowering else why_only_generic(graph, operator)
    if why:
        return why
    found = lowering(graph, operator, call, core, candidate) if lowering else ""
    return found if isinstance(found, str) else replace(found, family=family)
