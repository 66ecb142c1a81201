"""What the DSP family can do: its strategies by operator."""

from __future__ import annotations

from functools import partial

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish, candidates_of, of_portable
from utvm_deploy.kernels.native.dsp.conv2d import convolution_call, convolution_choices
from utvm_deploy.kernels.native.dsp.dense import dense_choices, dsp_dense_call
from utvm_deploy.kernels.native.dsp.depthwise import depthwise_call, depthwise_choices
from utvm_deploy.kernels.native.dsp.elementwise import dsp_elementwise_call, int16_multiply_call
from utvm_deploy.kernels.native.dsp.pool import DspPool
from utvm_deploy.kernels.native.dsp.transpose_conv import dsp_transpose_conv_call
from utvm_deploy.kernels.native.layer_tables import convolution_tables, dense_tables
from utvm_deploy.kernels.native.pool import pool_call


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D."""
    tables = convolution_tables(layer, turns_dilated=True)
    make = depthwise_call if tables.is_depthwise else convolution_call
    return make(layer.portable, tables, wish)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables = dense_tables(layer)
    return tables if isinstance(tables, str) else dsp_dense_call(layer.portable, tables, wish)


def build_elementwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """Elementwise operators of two inputs."""
    return dsp_elementwise_call(layer.portable, is_compact=wish.compact > 0)


FAMILY = "dsp"
_pool = of_portable(partial(pool_call, DspPool))
DSP_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        candidates_of(FAMILY, build_convolution, convolution_choices, depthwise_choices),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, dense_choices)),
    Strategy(("ADD", "MAXIMUM", "MINIMUM", "MUL", "PRELU", "SUB"), build_elementwise),
    Strategy(("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX"), _pool),
    Strategy(("TRANSPOSE_CONV",), of_portable(dsp_transpose_conv_call)),
    Strategy(("MUL",), of_portable(int16_multiply_call), dtype="int16"),
)
