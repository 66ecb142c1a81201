"""What computes float32 by vectors, where sums need not be those of the reference."""

from __future__ import annotations

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish
from utvm_deploy.kernels.native.fpu.convolution import product_call, product_of
from utvm_deploy.kernels.native.fpu.rows import row_kernels
from utvm_deploy.kernels.native.mve.float_depthwise import build_depthwise
from utvm_deploy.kernels.native.mve.float_rows import VectorRowTile

#: Modelled cycles of a product without vectors (docs/internals/float-kernels.md).
_MOST_CYCLES = 1.4


def build_product(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D as a matrix product, or FULLY_CONNECTED."""
    found = product_of(layer)
    if isinstance(found, str):
        return found
    window, weights, limits = found
    sizes = weights.shape[-1], len(weights)
    kernels = [
        one
        for one in row_kernels(window, *sizes, layer.core, VectorRowTile)
        if one.tile.cycles(layer.core) < _MOST_CYCLES * one.tile.pixels * one.tile.channels
    ]
    if not kernels:
        return "vectors would be slower, or its windows have no runs that are evenly apart"
    return product_call(layer, wish, kernels, weights.reshape(len(weights), -1), limits)


def build(layer: Layer, wish: Wish) -> KernelCall | str:
    """A depthwise layer of one channel is a matrix product."""
    if layer.kind == "DEPTHWISE_CONV_2D" and layer.source.shape[3] > 1:
        return build_depthwise(layer, wish)
    return build_product(layer, wish)


VECTOR_STRATEGIES = (
    Strategy(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), build, dtype="float32"),
)
