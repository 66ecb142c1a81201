"""The strategies of the vector family: which layers it computes, and what a candidate chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import (
    Choices,
    Layer,
    Strategy,
    Wish,
    candidates_of,
    of_portable,
)
from utvm_deploy.kernels.native.elementwise import scaled_call
from utvm_deploy.kernels.native.gathered_gemm import (
    GatheredConv2D,
    gathered,
    gathered_conv2d_call,
    gathered_dense_call,
)
from utvm_deploy.kernels.native.layer_tables import convolution_tables, dense_tables
from utvm_deploy.kernels.native.pool import pool_call
from utvm_deploy.kernels.native.routines.int16x8_gathered import wide_depthwise_call
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise
from utvm_deploy.kernels.native.rvv.blocks import TILES, scaled_rows
from utvm_deploy.kernels.native.rvv.depthwise import VectorRowProduct, vector_depthwise_call
from utvm_deploy.kernels.native.rvv.elementwise import VectorElementwise
from utvm_deploy.kernels.native.rvv.gemm import TWICE, UNITS, WIDE, WIDE_EACH, VectorProduct
from utvm_deploy.kernels.native.rvv.int16x8 import VectorInt16x8Depthwise, int16x8_conv_call
from utvm_deploy.kernels.native.rvv.pool import VectorPool
from utvm_deploy.kernels.native.scalar.pairs import chunk_starts
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D

_C = TypeVar("_C", bound="BlockChoices")
FAMILY = "rvv"
#: Pixels whose windows are gathered at a time.
_PIXELS = (6, 12, 24)
#: Channels that a register of weights has in the shortest vectors.
_CHANNELS = 16
#: Registers of weights in chunks, and steps of a chunk from which dense layers have them.
_CHUNKED, _LEAST_CHUNK = 2, 4


@dataclass(frozen=True)
class BlockChoices(Choices):
    """Registers of a block's weights."""

    lmul: int | None = None


@dataclass(frozen=True)
class ProductChoices(BlockChoices):
    """The same, and whether products are summed up in chunks of 16 bits."""

    chunks: bool | None = None


@dataclass(frozen=True)
class WindowsChoices(ProductChoices):
    """The same, and pixels whose windows are gathered at a time."""

    pixels: int | None = None


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D. A depthwise layer of one channel is built as CONV_2D."""
    kernel = layer.portable.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D)
    tables = convolution_tables(layer)
    scaled = scaled_rows(tables)
    if isinstance(scaled, str):
        return scaled
    weights, rows = scaled
    outputs, _, _, inputs = weights.shape
    groups = kernel.groups if isinstance(kernel, Conv2D) else 1
    if isinstance(kernel, DepthwiseConv2D) and kernel.channels > 1:
        chosen = _read(BlockChoices, wish)
        if isinstance(chosen, str):
            return chosen
        return vector_depthwise_call(
            layer.portable, tables, *scaled, chosen.lmul or _best_lmul(outputs, 3)
        )
    choices = _read(WindowsChoices, wish)
    if isinstance(choices, str):
        return choices
    lmul = choices.lmul or _best_lmul(outputs // groups, 1)
    channels = inputs, outputs // groups
    product = VectorProduct(lmul, UNITS[0])
    found = gathered(tables.window, channels, product, choices.pixels, groups)
    if choices.chunks:
        product = _chunked(weights, UNITS if found.is_gathered else _units(inputs), TWICE)
        found = gathered(tables.window, channels, product, choices.pixels, groups)
    elif not found.is_gathered:
        product = VectorProduct(lmul, _units(inputs)[0])
        found = gathered(tables.window, channels, product, choices.pixels, groups)
    limits = tables.zero_point, *tables.limits
    return gathered_conv2d_call(layer.portable, found, weights, rows, limits, tables.border)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables, choices = dense_tables(layer), _read(ProductChoices, wish)
    if isinstance(tables, str):
        return tables
    if isinstance(choices, str):
        return choices
    inputs = tables.weights.shape[1]
    rounding = WIDE if len(tables.scales) == 1 else WIDE_EACH
    product = VectorProduct(choices.lmul or 2, _units(inputs)[0], rounding)
    in_chunks = _chunked(tables.weights, _units(inputs), rounding)
    are_long = inputs >= _LEAST_CHUNK * _chunk_count(tables.weights, in_chunks.unit)
    if choices.chunks or (choices.chunks is None and choices.lmul is None and are_long):
        product = in_chunks
    return gathered_dense_call(layer.portable, tables, product)


def _read(choices: type[_C], wish: Wish) -> _C | str:
    found = choices() if wish.is_open else choices.read(wish.candidate)
    if not isinstance(found, str) and found.lmul not in (None, *TILES):
        return f"there are no blocks of {found.lmul} registers; there are {tuple(TILES)}"
    return found


def _units(depth: int) -> tuple[int, ...]:
    """The steps of a turn that divide the depth, the most first."""
    return tuple(unit for unit in UNITS if depth % unit == 0)


def _chunked(weights: Array, units: Sequence[int], rounding: str) -> VectorProduct:
    """The product in the fewest chunks that have as many steps in a turn as possible."""
    fitting = (unit for unit in units if _chunk_count(weights, unit))
    return VectorProduct(_CHUNKED, next(fitting), rounding, is_chunked=True)


def _chunk_count(weights: Array, unit: int) -> int:
    """Chunks of turns of ``unit`` steps; 0 if the sums of a turn need more than 16 bits."""
    flat = weights.reshape(len(weights), -1)
    starts = chunk_starts(flat, unit, len(flat))
    return 0 if starts is None else int(starts.sum())


def _best_lmul(channels: int, loads: int) -> int:
    """The registers of weights that promise the fewest instructions for a step of a pixel.

    A step has ``loads`` instructions and a product for each pixel, and 3 for the weights.
    """

    def instructions(lmul: int) -> float:
        pixels = TILES[lmul][0]
        return -(-channels // (_CHANNELS * lmul)) * (3 + (1 + loads) * pixels) / pixels

    return min(TILES, key=instructions)


def block_choices(kernel: object) -> Iterator[Choices]:
    """The choices of a layer of this default kernel; the default chooses nothing."""
    if isinstance(kernel, RowDepthwise) and isinstance(kernel.product, VectorRowProduct):
        yield BlockChoices()
        yield from (BlockChoices(lmul) for lmul in TILES if lmul != kernel.product.lmul)
    if not isinstance(kernel, GatheredConv2D):
        return
    assert isinstance(kernel.product, VectorProduct)
    own = kernel.product.lmul
    if kernel.product.rounding != TWICE:
        yield ProductChoices()
        yield ProductChoices(chunks=not kernel.product.is_chunked)
        return
    yield WindowsChoices()
    for lmul in TILES:
        for pixels in _PIXELS if kernel.is_gathered else (None,):
            if lmul != own or pixels not in (None, kernel.pixels):
                yield WindowsChoices(lmul, None, pixels)
    yield WindowsChoices(chunks=True)


RVV_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        candidates_of(FAMILY, build_convolution, block_choices),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, block_choices)),
    Strategy(("ADD", "MUL", "SUB"), of_portable(partial(scaled_call, VectorElementwise))),
    Strategy(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX"),
        of_portable(partial(pool_call, VectorPool)),
    ),
    Strategy(("CONV_2D",), int16x8_conv_call, dtype="int16"),
    Strategy(
        ("DEPTHWISE_CONV_2D",),
        partial(wide_depthwise_call, VectorInt16x8Depthwise, int16x8_conv_call),
        dtype="int16",
    ),
)
