"""The strategies of the scalar family: which layers it computes, and what a candidate chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import (
    Choices,
    Layer,
    NoChoices,
    Strategy,
    Wish,
    candidates_of,
)
from utvm_deploy.kernels.native.gathered_gemm import (
    GatheredConv2D,
    gathered,
    gathered_conv2d_call,
    gathered_dense,
)
from utvm_deploy.kernels.native.layer_tables import (
    ConvolutionTables,
    convolution_tables,
    dense_tables,
)
from utvm_deploy.kernels.native.scalar import gemm
from utvm_deploy.kernels.native.scalar.depthwise import scalar_depthwise_call
from utvm_deploy.kernels.native.scalar.pairs import best_pairing
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.single_rounding import single_scaling
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.records.candidate import COMPACT_MOST

FAMILY = "scalar"
#: Pixels of a register tile.
_TILES = (3, 2, 4, 1)
#: Pixels whose windows are gathered at a time.
_PIXELS = (6, 12, 24)
#: Pixels of the largest tile whose sums stay in registers.
_TILE = 3
#: Pairs take twice the flash, and are worth it below this many instructions for a product. Without
#: pairs it is 2.75.
_PAIRS_BELOW = 2.6


@dataclass(frozen=True)
class GemmChoices(Choices):
    """Pixels gathered at a time, pixels of the register tile, and whether weights are paired."""

    pixels: int | None = None
    tile: int | None = None
    pairs: bool | None = None


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D. A depthwise layer of one channel is built as CONV_2D."""
    kernel = layer.portable.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D)
    tables = convolution_tables(layer)
    twice = tables.short_scaling()
    if isinstance(twice, str):
        return twice
    once = single_scaling(twice, tables.weights, tables.zero_point, tables.limits)
    rounding, scaling = (gemm.TWICE, twice) if once is None else (gemm.ONCE, once)
    if isinstance(kernel, DepthwiseConv2D) and kernel.channels > 1:
        if isinstance(refused := NoChoices.read(wish.candidate), str):
            return refused
        return scalar_depthwise_call(layer.portable, tables, scaling, rounding)
    choices = _choices(wish)
    if isinstance(choices, str):
        return choices
    groups = kernel.groups if isinstance(kernel, Conv2D) else 1
    return _convolution(layer.portable, tables, scaling, rounding, choices, groups)


def _convolution(
    call: KernelCall,
    tables: ConvolutionTables,
    scaling: Scaling,
    rounding: str,
    choices: GemmChoices,
    groups: int,
) -> KernelCall | str:
    window, weights = tables.window, tables.weights
    inputs, outputs = weights.shape[3], weights.shape[0] // groups
    count = window.output_height * window.output_width

    def with_product(product: gemm.ScalarProduct) -> GatheredConv2D:
        return gathered(window, (inputs, outputs), product, choices.pixels, groups)

    is_gathered = with_product(gemm.ScalarProduct(1, 1)).is_gathered
    product = _product(weights, count, rounding, choices, is_filled=is_gathered)
    if isinstance(product, str):
        return product
    rows = np.array(scaling, dtype=np.int32)
    kernel = with_product(product)
    made = gathered_conv2d_call(call, kernel, weights, rows, tables.limits, tables.border)
    return replace(made, heeds_compact=COMPACT_MOST)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables, choices = dense_tables(layer), _choices(wish)
    if isinstance(tables, str):
        return tables
    if isinstance(choices, str):
        return choices
    scales = tables.scales
    is_one = len(scales) == 1
    rounding = gemm.WIDE if is_one else gemm.WIDE_EACH
    product = _product(tables.weights, tables.batch, rounding, choices, is_filled=False)
    if isinstance(product, str):
        return product
    rows = [tables.bias] if is_one else [tables.bias, *np.array(scales).T]
    limits: Sequence[int] = [*tables.limits, *scales[0]] if is_one else tables.limits
    outputs, inputs = tables.weights.shape
    kernel = gathered_dense(tables.batch, inputs, outputs, product)
    made = gathered_conv2d_call(
        layer.portable, kernel, tables.weights, np.array(rows, dtype=np.int32), limits
    )
    return replace(made, heeds_compact=COMPACT_MOST)


def _choices(wish: Wish) -> GemmChoices | str:
    choices = GemmChoices() if wish.is_open else GemmChoices.read(wish.candidate)
    if not isinstance(choices, GemmChoices):
        return choices
    if choices.tile not in (None, *_TILES):
        return f"there is no register tile of {choices.tile} pixels; there are {_TILES}"
    return replace(choices, pairs=False) if wish.is_open and wish.compact else choices


def _product(
    weights: Array, count: int, rounding: str, choices: GemmChoices, *, is_filled: bool
) -> gemm.ScalarProduct | str:
    """The micro-kernel for ``count`` pixels; ``is_filled``: the depth is filled up to units."""
    flat = weights.reshape(len(weights), -1)
    units = tuple(unit for unit in gemm.UNITS if is_filled or flat.shape[1] % unit == 0)
    pair = best_pairing(flat, units, gemm.CHANNELS) if choices.pairs is not False else None
    if choices.pairs and pair is None:
        return "weights of -128 side by side, whose sums do not fit 16 bits"
    is_paired = pair is not None and (choices.pairs is True or pair.instructions < _PAIRS_BELOW)
    best = min(_TILE, count)
    unit = pair.unit if pair is not None and is_paired else units[0]
    return gemm.ScalarProduct(choices.tile or best, unit, rounding, is_paired)


def gemm_choices(kernel: object) -> Iterator[Choices]:
    """The choices of the layer whose default kernel is ``kernel``; the default chooses nothing."""
    if not isinstance(kernel, GatheredConv2D):
        return
    assert isinstance(kernel.product, gemm.ScalarProduct)
    product = kernel.product
    yield GemmChoices()
    for pairs in (True, False):
        for tile in _TILES:
            for pixels in _PIXELS if kernel.is_gathered else (None,):
                is_default = (pairs, tile) == (product.is_paired, product.pixels)
                if not is_default or pixels not in (None, kernel.pixels):
                    yield GemmChoices(pixels, tile, pairs)


SCALAR_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        candidates_of(FAMILY, build_convolution, gemm_choices),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, gemm_choices)),
)
