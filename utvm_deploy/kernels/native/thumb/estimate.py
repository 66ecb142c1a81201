"""Estimates of plain C and of this family's convolutions and dense layers, to choose the default.

Plain C does not gather windows, so it is faster for small first layers and layers of few outputs.
The constants are modelled cycles on an emulated Cortex-M3, fitted to 134 layers, and instructions
on an emulated Cortex-M0, fitted to 97 small ones (``benchmarks/kernels/families.py``). Most
estimates are within 7 % and 12 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.thumb.conv2d import ThumbProduct
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense
from utvm_deploy.kernels.portable.schedules.tiling import RegisterTile, choose_tile


@dataclass(frozen=True)
class _Plain:
    """Constants of a layer in plain C."""

    output: float
    product: float
    load: float
    run: float  # of the inner loop
    copied: float  # a byte of rows with borders
    call: float


@dataclass(frozen=True)
class _Own:
    """Constants of a layer of this family, apart from its products."""

    row: float  # of a window that is gathered
    copied: float  # a byte
    edge: float  # a row of a window that reaches beyond the image
    window: float
    call: float


#: With Thumb-2 (True) and without.
_CONVOLUTION = {
    True: _Plain(42.1, 2.60, 1.76, 0.0, 0.76, 155),
    False: _Plain(85.4, 6.25, 0.0, 7.4, 1.62, 49),
}
_DENSE = {
    True: _Plain(55.1, 0.40, 3.97, 81.7, 0.0, 83),
    False: _Plain(149.3, 5.22, 0.0, 0.0, 0.0, 165),
}
_OWN = {True: _Own(16.3, 1.58, 103.0, 75.6, 310), False: _Own(17.5, 0.41, 66.5, 38.4, 309)}
#: Of each pixel of a group that is copied to its channels of the output, and of each byte.
_PUT, _PUT_BYTE = 12.0, 3.0


def is_plain_faster(
    plain: Conv2D | DepthwiseConv2D | Dense, own: GatheredConv2D, *, has_thumb2: bool
) -> bool:
    """Whether ``plain`` is estimated to be faster than ``own`` for a layer."""
    return _plain(plain, has_thumb2) < _own(own, has_thumb2)


def _plain(kernel: Conv2D | DepthwiseConv2D | Dense, has_thumb2: bool) -> float:
    if isinstance(kernel, Dense):
        tile = choose_tile(kernel.batch, kernel.outputs)
        sizes = kernel.batch * kernel.outputs, kernel.inputs
        return _sum(_DENSE[has_thumb2], tile, *sizes, runs=1, copied=0)
    w = kernel.window
    rows, columns = w.kernel
    pixels = w.batch * w.output_height * w.output_width
    if isinstance(kernel, DepthwiseConv2D):
        tile, outputs = RegisterTile(1, 1), kernel.channels * kernel.depth_multiplier
        inputs, depth = kernel.channels, rows * columns
    else:
        outputs, inputs = kernel.output_channels, kernel.input_channels
        tile = choose_tile(w.output_width, outputs)
        depth = rows * columns * inputs // kernel.groups
    copied = w.batch * w.output_height * rows * w.padded_width * inputs if w.is_padded else 0
    runs = rows if w.dilations[1] == 1 else rows * columns
    return _sum(_CONVOLUTION[has_thumb2], tile, pixels * outputs, depth, runs=runs, copied=copied)


def _sum(
    plain: _Plain, tile: RegisterTile, outputs: int, depth: int, *, runs: int, copied: int
) -> float:
    of_tile = tile.pixels * tile.channels
    loads = (tile.pixels + tile.channels) / of_tile
    each = plain.output + depth * (plain.product + plain.load * loads) + plain.run * runs / of_tile
    return outputs * each + plain.copied * copied + plain.call


def _own(kernel: GatheredConv2D, has_thumb2: bool) -> float:
    w, own = kernel.window, _OWN[has_thumb2]
    pixels, channels = w.batch * w.output_height * w.output_width, kernel.output_channels
    assert isinstance(kernel.product, ThumbProduct)
    cycles = kernel.product.cycles(pixels, channels, kernel.depth)
    if kernel.groups > 1:
        cycles += pixels * (_PUT + _PUT_BYTE * channels)
    if kernel.is_gathered:
        run = w.kernel[1] * kernel.input_channels
        # Columns of a group lie apart.
        is_apart = kernel.groups > 1 and w.kernel[1] > 1
        edges = pixels - (0 if is_apart else w.batch * _inside(w))
        cycles += w.kernel[0] * (pixels * (own.row + own.copied * run) + own.edge * edges)
        cycles += own.window * pixels
    return kernel.groups * cycles + own.call


def _inside(w: Window) -> int:
    """The number of windows of an image that need no border and are copied in one piece."""
    if w.dilations[1] > 1:
        return 0
    sides = (
        (w.output_height, w.strides[0], w.top, w.height - (w.kernel[0] - 1) * w.dilations[0]),
        (w.output_width, w.strides[1], w.left, w.width - (w.kernel[1] - 1)),
    )
    rows, columns = (
        sum(0 <= at * stride - before < places for at in range(count))
        for count, stride, before, places in sides
    )
    return rows * columns
