"""What the DSP family can do: its strategies by operator."""

from __future__ import annotations

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import (
    Layer,
    Strategy,
    Wish,
    candidates_of,
    of_portable,
)
from utvm_deploy.kernels.native.dsp.bytes import build_by_words, build_large_pool
from utvm_deploy.kernels.native.dsp.convolution import (
    build_convolution,
    convolution_choices,
    exact_candidates,
)
from utvm_deploy.kernels.native.dsp.dense import build_dense, dense_choices
from utvm_deploy.kernels.native.dsp.elementwise import build_elementwise, int16_multiply_call
from utvm_deploy.kernels.native.dsp.int16x8 import build_int16_convolution, int16_choices
from utvm_deploy.kernels.native.dsp.lookup import build_lookup
from utvm_deploy.kernels.native.dsp.lstm import build_lstm
from utvm_deploy.kernels.native.dsp.patches import dsp_transpose_conv_call
from utvm_deploy.kernels.native.dsp.pool import DspPool
from utvm_deploy.kernels.native.pool import pool_call
from utvm_deploy.kernels.portable.integers.lookup import FUNCTIONS

FAMILY = "dsp"


def _build_pool(layer: Layer, wish: Wish) -> KernelCall | str:
    call = pool_call(DspPool, layer.portable)
    if not isinstance(call, str):
        return call
    return build_by_words(layer, wish) or build_large_pool(layer, wish) or call


DSP_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        exact_candidates(candidates_of(FAMILY, build_convolution, convolution_choices)),
        unpacks=True,
    ),
    Strategy(
        ("FULLY_CONNECTED",),
        build_dense,
        candidates_of(FAMILY, build_dense, dense_choices),
        unpacks=True,
    ),
    Strategy(("ADD", "MAXIMUM", "MINIMUM", "MUL", "PRELU", "SUB"), build_elementwise),
    Strategy(("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX"), _build_pool),
    Strategy(("CONCATENATION", "PACK", "REDUCE_MIN", "SUM"), build_by_words),
    Strategy(("CONCATENATION", "MEAN", "PACK"), build_by_words, dtype="int16"),
    Strategy(("TRANSPOSE_CONV",), of_portable(dsp_transpose_conv_call)),
    Strategy(
        ("CONV_2D",),
        build_int16_convolution,
        candidates_of(FAMILY, build_int16_convolution, int16_choices),
        dtype="int16",
    ),
    Strategy((*FUNCTIONS, "LOOKUP"), build_lookup),
    Strategy(("UNIDIRECTIONAL_SEQUENCE_LSTM",), build_lstm),
    Strategy(("MUL",), of_portable(int16_multiply_call), dtype="int16"),
)
