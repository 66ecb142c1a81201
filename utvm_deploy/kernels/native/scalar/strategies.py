"""The strategies of the scalar family: which layers it computes, and what a candidate chooses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

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
    of_portable,
)
from utvm_deploy.kernels.native.estimated import best_kernel, choices_of_small
from utvm_deploy.kernels.native.gathered_gemm import (
    GatheredConv2D,
    gathered,
    gathered_conv2d_call,
    gathered_dense_call,
)
from utvm_deploy.kernels.native.layer_tables import (
    ConvolutionTables,
    convolution_tables,
    dense_tables,
)
from utvm_deploy.kernels.native.routines.int16x8_gathered import wide_depthwise_call
from utvm_deploy.kernels.native.scalar import gemm, steps
from utvm_deploy.kernels.native.scalar.depthwise import scalar_depthwise_call
from utvm_deploy.kernels.native.scalar.elementwise import scalar_sum_call
from utvm_deploy.kernels.native.scalar.int16x8 import ScalarInt16x8Depthwise, int16x8_conv_call
from utvm_deploy.kernels.native.scalar.pairs import best_pairing, chunk_count
from utvm_deploy.kernels.native.scalar.rounding import (
    WIDE,
    WIDE_EACH,
    Rounding,
    short_rounding,
)
from utvm_deploy.kernels.native.scalar.winograd import (
    ScalarWinograd,
    WinogradChoices,
    winograd_kernels,
)
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.records.candidate import COMPACT_MOST, Candidate

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
#: Scratch of Winograd by default at most, if it can do with so little.
_MOST_SCRATCH_BYTES = 32_768
#: Bytes of a row of a window that is copied without a loop at most.
_RUN = 32


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
    found = short_rounding(tables)
    if isinstance(found, str):
        return found
    rounding, scaling = found
    if isinstance(kernel, DepthwiseConv2D) and kernel.channels > 1:
        if isinstance(refused := NoChoices.read(wish.candidate), str):
            return refused
        return scalar_depthwise_call(layer.portable, tables, scaling, rounding, wish.most_scratch)
    winograd = WinogradChoices.read(wish.candidate)
    if not wish.is_open and isinstance(winograd, WinogradChoices):
        return _winograd(layer.portable, tables, winograd)
    choices = _choices(wish)
    if isinstance(choices, str):
        return choices
    groups = kernel.groups if isinstance(kernel, Conv2D) else 1
    numbers = scaling, rounding, choices, groups
    call = _convolution(layer.portable, tables, *numbers, is_compact=wish.compact > 0)
    if not wish.is_open or wish.compact or isinstance(call, str):
        return call
    assert isinstance(call.kernel, GatheredConv2D)
    most = call.kernel.estimated_cycles
    faster = [one for one in winograd_kernels(tables) if one.estimated_cycles < most]
    # The form of the fastest one: with few tiles, it still is faster than the other form.
    form = min(faster, key=lambda one: one.estimated_cycles).outputs if faster else 0
    kernels: list[GatheredConv2D | ScalarWinograd] = [call.kernel]
    kernels += (one for one in faster if one.outputs == form)
    best = best_kernel(kernels, wish, _MOST_SCRATCH_BYTES)
    return best.make_call(call, tables) if isinstance(best, ScalarWinograd) else call


def _winograd(
    call: KernelCall, tables: ConvolutionTables, choices: WinogradChoices
) -> KernelCall | str:
    """The call of the kernel with these choices, or why there is none."""
    found = [one for one in winograd_kernels(tables) if one.choices == choices]
    if not found:
        return (
            f"Winograd with {choices.outputs}x{choices.outputs} outputs and blocks of "
            f"{choices.tiles} tiles is not possible, or not exact, for this layer"
        )
    return found[0].make_call(call, tables)


def _convolution(
    call: KernelCall,
    tables: ConvolutionTables,
    scaling: Scaling,
    rounding: Rounding,
    choices: GemmChoices,
    groups: int,
    *,
    is_compact: bool,
) -> KernelCall | str:
    """The matrix product; ``is_compact``: all layers share the code."""
    window, weights = tables.window, tables.weights
    inputs, outputs = weights.shape[3], weights.shape[0] // groups
    count = window.output_height * window.output_width

    def with_product(product: gemm.ScalarProduct) -> GatheredConv2D:
        return gathered(window, (inputs, outputs), product, choices.pixels, groups)

    one = with_product(gemm.ScalarProduct(1, 1))
    is_gathered = one.is_gathered
    # The code of steps has one pointer for all pixels of a tile.
    is_near = (steps.PIXELS - 1) * one.depth < gemm.REACH and not is_compact
    product = _product(
        *(weights, count, rounding, choices, groups), is_filled=is_gathered, is_near=is_near
    )
    if isinstance(product, str):
        return product
    rows = np.array(scaling, dtype=np.int32)
    pitch = with_product(product).depth if is_gathered else inputs * groups
    if not is_compact and (product.pixels - 1) * pitch + product.unit <= gemm.REACH:
        product = replace(product, pitch=pitch)
    kernel = replace(with_product(product), most_run=0 if is_compact else _RUN)
    made = gathered_conv2d_call(call, kernel, weights, rows, tables.limits, tables.border)
    return replace(made, heeds_compact=COMPACT_MOST)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables, choices = dense_tables(layer), _choices(wish)
    if isinstance(tables, str):
        return tables
    if isinstance(choices, str):
        return choices
    rounding = WIDE if len(tables.scales) == 1 else WIDE_EACH
    product = _product(
        tables.weights, tables.batch, rounding, choices, is_filled=False, is_near=False
    )
    if isinstance(product, str):
        return product
    made = gathered_dense_call(layer.portable, tables, product)
    return replace(made, heeds_compact=COMPACT_MOST)


def _choices(wish: Wish) -> GemmChoices | str:
    choices = GemmChoices() if wish.is_open else GemmChoices.read(wish.candidate)
    if not isinstance(choices, GemmChoices):
        return choices
    if choices.tile not in (None, *_TILES):
        return f"there is no register tile of {choices.tile} pixels; there are {_TILES}"
    return replace(choices, pairs=False) if wish.is_open and wish.compact else choices


def _product(
    weights: Array,
    count: int,
    rounding: Rounding,
    choices: GemmChoices,
    groups: int = 1,
    *,
    is_filled: bool,
    is_near: bool,
) -> gemm.ScalarProduct | str:
    """The micro-kernel for ``count`` pixels; ``is_filled``: the depth is filled up to units.

    ``is_near``: one pointer reaches the pixels of a tile.
    """
    flat = weights.reshape(len(weights), -1)
    best = choices.tile or min(_TILE, count)
    units = tuple(unit for unit in gemm.UNITS if is_filled or flat.shape[1] % unit == 0)
    if units != (1,) and not (is_near and best == steps.PIXELS):
        units = units[:-1]
    pair = best_pairing(flat, units, gemm.CHANNELS) if choices.pairs is not False else None
    if choices.pairs and pair is None:  # chunks of one step fit more weights
        pair = best_pairing(flat, (1,), gemm.CHANNELS)
    if choices.pairs and pair is None:
        return "weights of -128 side by side, whose sums do not fit 16 bits"
    is_paired = pair is not None and (choices.pairs is True or pair.instructions < _PAIRS_BELOW)
    unit = pair.unit if pair is not None and is_paired else units[0]
    parts = np.split(flat, groups) if is_paired else []
    chunks = max((chunk_count(part, unit, gemm.CHANNELS) for part in parts), default=0)
    return gemm.ScalarProduct(best, unit, rounding, chunks)


def gemm_choices(kernel: object) -> Iterator[Choices]:
    """The choices of the layer whose default kernel is ``kernel``, those of the default first."""
    if isinstance(kernel, ScalarWinograd):
        yield kernel.choices
        default = None
    elif isinstance(kernel, GatheredConv2D):
        assert isinstance(kernel.product, gemm.ScalarProduct)
        yield GemmChoices()
        of_block = kernel.pixels if kernel.is_gathered else None
        default = GemmChoices(of_block, kernel.product.pixels, kernel.product.is_paired)
    else:
        return
    is_gathered = default is None or default.pixels is not None
    blocks: tuple[int | None, ...] = _PIXELS if is_gathered else (None,)
    every = (GemmChoices(*one) for one in itertools.product(blocks, _TILES, (True, False)))
    yield from (one for one in every if one != default)


def _convolution_candidates(layer: Layer) -> Iterator[Candidate]:
    yield from candidates_of(FAMILY, build_convolution, gemm_choices)(layer)
    if isinstance(layer.portable.kernel, Conv2D):
        kernels = winograd_kernels(convolution_tables(layer))
        yield from (one.candidate(FAMILY) for one in choices_of_small(kernels))


SCALAR_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        _convolution_candidates,
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, gemm_choices)),
    Strategy(("ADD", "SUB"), of_portable(scalar_sum_call)),
    Strategy(("CONV_2D",), int16x8_conv_call, dtype="int16"),
    Strategy(
        ("DEPTHWISE_CONV_2D",),
        partial(wide_depthwise_call, ScalarInt16x8Depthwise, int16x8_conv_call),
        dtype="int16",
    ),
)
