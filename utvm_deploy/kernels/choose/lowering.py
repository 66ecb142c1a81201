"""Operator -> kernel call: the table of what can be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.cores.core import CORES, Core
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import why_only_generic
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish
from utvm_deploy.kernels.native.dsp.strategies import DSP_STRATEGIES
from utvm_deploy.kernels.native.mve.strategies import MVE_STRATEGIES
from utvm_deploy.kernels.native.routines.batch_matmul import lower_batch_matmul
from utvm_deploy.kernels.native.routines.int16x8 import (
    lower_int16x8_convolution,
    lower_int16x8_dense,
)
from utvm_deploy.kernels.native.routines.log_softmax import lower_log_softmax
from utvm_deploy.kernels.native.routines.lstm import lower_lstm
from utvm_deploy.kernels.native.routines.lstm_variants import is_plain, lower_full_lstm
from utvm_deploy.kernels.native.routines.resize import lower_resize_bilinear
from utvm_deploy.kernels.native.routines.softmax import lower_softmax
from utvm_deploy.kernels.native.routines.svdf import lower_svdf
from utvm_deploy.kernels.native.thumb.strategies import THUMB_STRATEGIES
from utvm_deploy.kernels.portable.booleans import lower_cast, lower_comparison, lower_select
from utvm_deploy.kernels.portable.conv2d import lower_conv2d
from utvm_deploy.kernels.portable.conversions import (
    lower_dequantize,
    lower_quantize,
    lower_relu_int16,
)
from utvm_deploy.kernels.portable.cumsum import lower_cumsum
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
from utvm_deploy.kernels.portable.loop_shapes import loop_candidates, looped_call
from utvm_deploy.kernels.portable.mean import lower_mean
from utvm_deploy.kernels.portable.movement import lower_pad, lower_reshape, lower_variable
from utvm_deploy.kernels.portable.pool import lower_pool
from utvm_deploy.kernels.portable.reduce import lower_arg_extremum, lower_reduce_extremum
from utvm_deploy.kernels.portable.stored_values import lower_stored_values
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
    "BITWISE_XOR": lower_stored_values,
    "BROADCAST_TO": lower_rearrange,
    "CAST": lower_cast,
    "CONCATENATION": lower_concatenation,
    "CONV_2D": lower_conv2d,
    "CUMSUM": lower_cumsum,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "DEPTH_TO_SPACE": lower_rearrange,
    "DEQUANTIZE": lower_dequantize,
    "EMBEDDING_LOOKUP": lower_gather,
    "EQUAL": lower_comparison,
    "EXP": lower_lookup,
    "EXPAND_DIMS": lower_reshape,
    "FLOOR_MOD": lower_stored_values,
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
    "RIGHT_SHIFT": lower_stored_values,
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
    "CONV_2D": lower_int16x8_convolution,
    "DEPTHWISE_CONV_2D": lower_int16x8_convolution,
    "EXP": lower_interpolated,
    "FULLY_CONNECTED": lower_int16x8_dense,
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


@dataclass(frozen=True)
class Family:
    """Kernels for the cores that have what they need."""

    fits: Callable[[Core], bool]
    strategies: tuple[Strategy, ...]

    def strategy(self, kind: str, dtype: str) -> Strategy | None:
        """The one for an operator's kind on activations of a type."""
        # What is made for int8 serves other types, too, as far as ``why_only_generic`` lets it.
        wanted = "int16" if dtype == "int16" else "int8"
        found = (s for s in self.strategies if kind in s.operators and s.dtype == wanted)
        return next(found, None)


#: Families beside the portable one, best first.
FAMILIES: Mapping[str, Family] = {
    "mve": Family(lambda core: core.mve, MVE_STRATEGIES),
    "dsp": Family(lambda core: core.dsp, DSP_STRATEGIES),
    "thumb": Family(lambda core: core.is_arm and not core.dsp, THUMB_STRATEGIES),
}


def families_for(core: str) -> tuple[str, ...]:
    """The families that a core has, best first, the portable one last."""
    facts = CORES.get(core)
    special = [name for name, one in FAMILIES.items() if facts is not None and one.fits(facts)]
    return (*special, GENERIC)


def lower(
    graph: Graph,
    operator: Operator,
    core: str = GENERIC,
    candidate: Candidate | None = None,
    *,
    most_scratch: int | None = None,
    compact: int = 0,
) -> KernelCall:
    """The kernel that does what ``operator`` does, and its arguments in this graph.

    ``core`` names the core whose kernels to use where there are any for the case; "generic" stands
    for every core. ``candidate`` says which, and how; without one the best family that has a kernel
    chooses. ``most_scratch`` (bytes) and ``compact`` are the limits of a ``Wish``. A candidate that
    does not fit raises UnsupportedOperator with the reason.
    """
    layer = Layer(graph, operator, core, _portable(graph, operator))
    wish = Wish(candidate, most_scratch, compact)
    if candidate is not None:
        return _lower_as(candidate, layer, wish)
    call = layer.portable
    # The last family is the portable one, whose call tells why there is no better one.
    for family in families_for(core)[:-1]:
        found = _in_family(family, layer, wish)
        if isinstance(found, KernelCall):
            return found
        if found and not call.why_not:
            # The next family's call keeps the reason, too.
            call = replace(call, why_not=f"no {family.upper()} kernel: {found}")
            layer = replace(layer, portable=call)
    return call


def candidates_in(family: str, layer: Layer) -> tuple[Candidate, ...]:
    """What the tuner may measure of a family for a layer; () where the family has no kernel."""
    if family == GENERIC:
        return loop_candidates(layer.portable)
    plain = Candidate(family)
    if isinstance(_in_family(family, layer, Wish(plain)), str):
        return ()
    strategy = FAMILIES[family].strategy(layer.operator.kind, _dtype(layer))
    listed = strategy.candidates if strategy else None
    return (plain,) if listed is None else tuple(listed(layer))


def _portable(graph: Graph, operator: Operator) -> KernelCall:
    lowering = LOWERINGS.get(operator.kind)
    if lowering is None:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedOperator(f"no kernel for operator {operator.kind}; there are {known}")
    source = operator.inputs[0]
    if source is not None and graph.tensors[source].dtype == "int16":
        lowering = INT16_LOWERINGS.get(operator.kind, lowering)
    return lowering(graph, operator)


def _dtype(layer: Layer) -> str:
    """The type of the activations that a layer reads."""
    source = layer.operator.inputs[0]
    return "" if source is None else layer.graph.tensors[source].dtype


def _lower_as(candidate: Candidate, layer: Layer, wish: Wish) -> KernelCall:
    """The call of just this candidate."""
    families = families_for(layer.core)
    if candidate.family not in families:
        raise UnsupportedOperator(
            f"core {layer.core} has no kernels of family {candidate.family!r}; "
            f"it has {', '.join(families)}"
        )
    if candidate.family == GENERIC:
        return looped_call(layer.portable, candidate)
    found = _in_family(candidate.family, layer, wish)
    if isinstance(found, str):
        why, kind = found or "the family has none", layer.operator.kind
        raise UnsupportedOperator(f"no kernel {candidate.label!r} for {kind}: {why}")
    return found


def _in_family(family: str, layer: Layer, wish: Wish) -> KernelCall | str:
    """The family's call instead of the portable one, or why there is none."""
    if family == GENERIC:
        return layer.portable
    dtype = _dtype(layer)
    strategy = FAMILIES[family].strategy(layer.operator.kind, dtype)
    why = "" if dtype == "int16" and strategy else why_only_generic(layer.graph, layer.operator)
    if why:
        return why
    found = strategy.build(layer, wish) if strategy else ""
    return found if isinstance(found, str) else replace(found, family=family)
