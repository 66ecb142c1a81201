"""The strategies of the family: which layers it computes."""

from __future__ import annotations

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, NoChoices, Strategy, Wish
from utvm_deploy.kernels.native.gathered_gemm import (
    gathered,
    gathered_conv2d_call,
    gathered_dense_call,
)
from utvm_deploy.kernels.native.layer_tables import (
    ConvolutionTables,
    convolution_tables,
    dense_tables,
)
from utvm_deploy.kernels.native.scalar.rounding import (
    TWICE,
    WIDE,
    WIDE_EACH,
    Rounding,
    short_rounding,
)
from utvm_deploy.kernels.native.scaling import REACH_LIMIT, Scaling
from utvm_deploy.kernels.native.simd.gemm import LEAST_SHIFT, STEP, SimdProduct
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D

#: Pixels of a tile: eight sums, two pixels and a weight are in registers.
_TILE = 2


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D. Windows that are gathered are filled up to whole steps of the depth."""
    kernel = layer.portable.kernel
    assert isinstance(kernel, Conv2D)
    if isinstance(refused := NoChoices.read(wish.candidate), str):
        return refused
    tables = convolution_tables(layer)
    found = _rounding(tables)
    if isinstance(found, str):
        return found
    rounding, scaling = found
    window, weights, groups = tables.window, tables.weights, kernel.groups
    channels = weights.shape[3], weights.shape[0] // groups
    product = SimdProduct(min(_TILE, window.output_height * window.output_width), rounding)
    made = gathered(window, channels, product, None, groups)
    if made.depth % STEP:
        return _depth(made.depth)
    rows = np.array(scaling, dtype=np.int32)
    return gathered_conv2d_call(layer.portable, made, weights, rows, tables.limits, tables.border)


def _rounding(tables: ConvolutionTables) -> tuple[Rounding, Scaling] | str:
    """A rounding whose shifts are all large enough."""
    found = short_rounding(tables)
    if isinstance(found, str):
        return found
    twice = tables.short_scaling(REACH_LIMIT)
    assert not isinstance(twice, str)
    for rounding, scaling in (found, (TWICE, twice)):
        # Of an output that does not depend on its sum, the shift may be any.
        more = np.where(scaling.multiplier == 0, np.maximum(LEAST_SHIFT - scaling.shift, 0), 0)
        raised = scaling._replace(shift=scaling.shift + more, offset=scaling.offset << more)
        if int(raised.shift.min()) >= LEAST_SHIFT:
            return rounding, raised
    return f"an output's scale needs a right shift by less than {LEAST_SHIFT}"


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    if isinstance(refused := NoChoices.read(wish.candidate), str):
        return refused
    tables = dense_tables(layer)
    if isinstance(tables, str):
        return tables
    if tables.weights.shape[1] % STEP:
        return _depth(tables.weights.shape[1])
    rounding = WIDE if len(tables.scales) == 1 else WIDE_EACH
    product = SimdProduct(min(_TILE, tables.batch), rounding)
    return gathered_dense_call(layer.portable, tables, product)


def _depth(depth: int) -> str:
    return f"a depth of {depth}, and not of {STEP} or a multiple"


SIMD_STRATEGIES = (
    Strategy(("CONV_2D",), build_convolution),
    Strategy(("FULLY_CONNECTED",), build_dense),
)
