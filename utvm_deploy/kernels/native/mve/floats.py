"""What computes float32 by vectors, where sums need not be those of the reference."""

from __future__ import annotations

import math

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish
from utvm_deploy.kernels.native.fpu.convolution import build_product, product_call, product_of
from utvm_deploy.kernels.native.fpu.rows import FpuProduct, row_kernels
from utvm_deploy.kernels.native.mve.float_depthwise import build_depthwise
from utvm_deploy.kernels.native.mve.float_rows import VectorRowTile


def build_product_by_vectors(layer: Layer, wish: Wish) -> KernelCall | str:
    """The product by vectors, if that is faster than one by one."""
    wish = Wish(most_scratch=wish.most_scratch)
    found, other = product_of(layer), build_product(layer, wish)
    if isinstance(found, str) or isinstance(other, str):
        return found if isinstance(found, str) else str(other)
    window, weights, limits = found
    sizes = weights.shape[-1], len(weights)
    kernels = tuple(row_kernels(window, *sizes, layer.core, VectorRowTile))
    if not kernels:
        return "its windows have no runs that are evenly apart"
    made = product_call(layer, wish, kernels, weights.reshape(len(weights), -1), limits)
    mine, others = (
        one.kernel.cycles(layer.core) if isinstance(one.kernel, FpuProduct) else math.inf
        for one in (made, other)
    )
    return made if mine < others else "vectors would be slower"


def build(layer: Layer, wish: Wish) -> KernelCall | str:
    """A depthwise layer of one channel is a matrix product."""
    if layer.kind == "DEPTHWISE_CONV_2D" and layer.source.shape[3] > 1:
        return build_depthwise(layer, wish)
    return build_product_by_vectors(layer, wish)


VECTOR_STRATEGIES = (
    Strategy(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), build, dtype="float32"),
)
