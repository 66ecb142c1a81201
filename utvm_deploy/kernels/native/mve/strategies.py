"""The strategies of the Helium family. Multipliers and shifts come from the portable call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import (
    Choices,
    Layer,
    Strategy,
    Wish,
    candidates_of,
    of_portable,
)
from utvm_deploy.kernels.native.dense import dense_call
from utvm_deploy.kernels.native.dsp.convolution import build_convolution as dsp_convolution
from utvm_deploy.kernels.native.elementwise import scaled_call
from utvm_deploy.kernels.native.gathered_gemm import (
    GatheredConv2D,
    gathered,
    gathered_conv2d_call,
)
from utvm_deploy.kernels.native.layer_tables import (
    ConvolutionTables,
    convolution_tables,
    dense_tables,
)
from utvm_deploy.kernels.native.mve.dense import FACTOR, SUM_LIMIT, MveDense
from utvm_deploy.kernels.native.mve.depthwise import mve_depthwise_call
from utvm_deploy.kernels.native.mve.elementwise import MveElementwise
from utvm_deploy.kernels.native.mve.gemm import MveProduct
from utvm_deploy.kernels.native.mve.int16x8 import mve_int16x8_conv_call, mve_int16x8_dense_call
from utvm_deploy.kernels.native.mve.int16x8_depthwise import mve_int16x8_depthwise_call
from utvm_deploy.kernels.native.mve.patch_depthwise import PatchDepthwise, patch_depthwise_call
from utvm_deploy.kernels.native.mve.pool import MvePool
from utvm_deploy.kernels.native.mve.shared_blocks import has_left_shift
from utvm_deploy.kernels.native.mve.transpose_conv import mve_transpose_conv_call
from utvm_deploy.kernels.native.pool import pool_call
from utvm_deploy.kernels.native.scaling import extremes
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D

#: Up to this many channels, less than half of a vector, DSP code may be faster at stride 1.
_FEW_CHANNELS = 3
#: Pixels whose windows are gathered at a time.
_PIXELS = (3, 6, 12, 24, 48)


@dataclass(frozen=True)
class WindowsChoices(Choices):
    """Pixels whose windows are gathered at a time."""

    pixels: int | None = None


def _build_depthwise(layer: Layer, wish: Wish, tables: ConvolutionTables) -> KernelCall | str:
    """By patches, unless the wish wants less; else tap by tap."""
    own = PatchChoices.read(wish.candidate)
    if isinstance(own, str):
        return own
    if own.patches and not (wish.is_open and wish.compact):
        made = patch_depthwise_call(layer.portable, tables)
        if isinstance(made, KernelCall) and isinstance(made.kernel, PatchDepthwise):
            most = wish.most_scratch if wish.is_open else None
            if most is None or sum(one.size_bytes for one in made.kernel.scratch) <= most:
                return made
    few = tables.weights.shape[0] <= _FEW_CHANNELS and tables.window.strides == (1, 1)
    is_open = few and wish.candidate is None
    if is_open and isinstance(dsp_convolution(layer, Wish()), KernelCall):
        return "few channels at stride 1, which DSP code does faster"
    return mve_depthwise_call(layer.portable, tables)


@dataclass(frozen=True)
class PatchChoices(Choices):
    """Whether the window of a depthwise convolution is a vector, where it can be."""

    patches: bool = True


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D. A depthwise layer of one channel is built as CONV_2D."""
    call = layer.portable
    groups = call.kernel.groups if isinstance(call.kernel, Conv2D) else 1
    if isinstance(call.kernel, Conv2D) and 1 < groups == call.kernel.input_channels:
        return "it has a group for each channel"
    tables = convolution_tables(layer)
    if isinstance(call.kernel, DepthwiseConv2D) and call.kernel.channels > 1:
        return _build_depthwise(layer, wish, tables)
    choices = WindowsChoices() if wish.is_open else WindowsChoices.read(wish.candidate)
    if isinstance(choices, str):
        return choices
    outputs, _, _, inputs = tables.weights.shape
    product = MveProduct(has_left_shift(tables.shift))
    kernel = gathered(tables.window, (inputs, outputs // groups), product, choices.pixels, groups)
    rows = np.array([tables.bias, tables.multiplier, tables.shift], dtype=np.int32)
    limits = tables.zero_point, *tables.limits
    return gathered_conv2d_call(call, kernel, tables.weights, rows, limits, tables.border)


def windows_choices(kernel: object) -> Iterator[Choices]:
    """The open choice, which this kernel comes from, and those that make another kernel."""
    if isinstance(kernel, GatheredConv2D) and kernel.is_gathered:
        yield WindowsChoices()
        yield from (WindowsChoices(pixels) for pixels in _PIXELS if pixels != kernel.pixels)


def depthwise_choices(kernel: object) -> Iterator[Choices]:
    """Both ways, where there are two."""
    if isinstance(kernel, PatchDepthwise):
        yield PatchChoices()
        yield PatchChoices(patches=False)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED, if one rounding in 64 bits does for it."""
    halves = layer.input(1).dtype == "int4"
    tables = dense_tables(layer, FACTOR if halves else 1)
    if isinstance(tables, str):
        return tables
    most = max(int(np.abs(end).max()) for end in extremes(tables.bias, tables.weights))
    if halves and most >= SUM_LIMIT:
        return f"a sum with int4 weights can reach {most}"
    return dense_call(layer.portable, tables, MveDense(len(tables.scales) > 1, halves))


build_elementwise = of_portable(partial(scaled_call, MveElementwise))
build_pool = of_portable(partial(pool_call, MvePool))
_POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "REDUCE_MAX")
_ELEMENTWISE = ("ADD", "MUL", "SUB")
MVE_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        candidates_of("mve", build_convolution, windows_choices, depthwise_choices),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, unpacks=True),
    Strategy(_ELEMENTWISE, build_elementwise),
    Strategy(_POOLS, build_pool),
    Strategy(("TRANSPOSE_CONV",), of_portable(mve_transpose_conv_call)),
    Strategy(("CONV_2D",), mve_int16x8_conv_call, dtype="int16"),
    Strategy(("DEPTHWISE_CONV_2D",), of_portable(mve_int16x8_depthwise_call), dtype="int16"),
    Strategy(("FULLY_CONNECTED",), mve_int16x8_dense_call, dtype="int16"),
    Strategy(_ELEMENTWISE, build_elementwise, dtype="int16"),
    Strategy(_POOLS, build_pool, dtype="int16"),
)
