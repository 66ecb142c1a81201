"""What computes by vectors: float32 with sums unlike the reference's, and float16."""

from __future__ import annotations

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish
from utvm_deploy.kernels.native.fpu.convolution import product_call, product_of
from utvm_deploy.kernels.native.fpu.rows import row_kernels
from utvm_deploy.kernels.native.mve.float_depthwise import build_depthwise, build_half_depthwise
from utvm_deploy.kernels.native.mve.float_rows import HalfRowTile, VectorRowTile
from utvm_deploy.kernels.native.mve.half_elementwise import build_half_elementwise
from utvm_deploy.kernels.native.mve.half_pool import build_half_pool

#: Modelled cycles of a product without vectors (docs/internals/float-kernels.md).
_MOST_CYCLES = 1.4


def build_product(
    layer: Layer, wish: Wish, kind: type[VectorRowTile] = VectorRowTile
) -> KernelCall | str:
    """CONV_2D as a matrix product, or FULLY_CONNECTED."""
    found = product_of(layer)
    if isinstance(found, str):
        return found
    window, weights, limits = found
    sizes = weights.shape[-1], len(weights)
    kernels = [
        one
        for one in row_kernels(window, *sizes, layer.core, kind)
        if kind is HalfRowTile
        or one.tile.cycles(layer.core) < _MOST_CYCLES * one.tile.pixels * one.tile.channels
    ]
    if not kernels:
        return "vectors would be slower, or its windows have no runs that are evenly apart"
    return product_call(layer, wish, kernels, weights.reshape(len(weights), -1), limits)


def build(layer: Layer, wish: Wish) -> KernelCall | str:
    """A depthwise layer of one channel is a matrix product."""
    if layer.kind == "DEPTHWISE_CONV_2D" and layer.source.shape[3] > 1:
        return build_depthwise(layer, wish)
    return build_product(layer, wish)


def build_half(layer: Layer, wish: Wish) -> KernelCall | str:
    """A layer of float32, computed with numbers of float16."""
    if layer.input(1).data is None:
        return "its weights are computed"
    if layer.kind == "DEPTHWISE_CONV_2D" and layer.source.shape[3] > 1:
        return build_half_depthwise(layer, wish)
    return build_product(layer, wish, HalfRowTile)


_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
VECTOR_STRATEGIES = (Strategy(_OPERATORS, build, dtype="float32"),)
HALF_STRATEGIES = (
    Strategy(_OPERATORS, build_half, dtype="float32"),
    Strategy(("AVERAGE_POOL_2D", "MAX_POOL_2D"), build_half_pool, dtype="float32"),
    Strategy(
        ("ADD", "MUL", "SUB", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"),
        build_half_elementwise,
        dtype="float32",
    ),
)
