"""Which of the two ways a DEPTHWISE_CONV_2D is done: over planes, or pixel by pixel.

Without a candidate both are estimated. The estimate counts cycles as the default records' cores
take them: products, requantization, what fills scratch, and lines that a small cache forgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import depthwise_planes_code
from utvm_deploy.kernels.native.dsp.depthwise_pixels import (
    PixelsChoices,
    pixels_call,
    pixels_kernel,
)
from utvm_deploy.kernels.native.dsp.depthwise_pixels_code import GROUP, UNROLLED, group_words
from utvm_deploy.kernels.native.dsp.depthwise_planes import (
    PARTS,
    DspPlanes,
    PlanesChoices,
    planes_call,
    planes_choices,
)
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.window_rewrites import without_dilation

#: Scratch by default: at most so much, and less where that costs no more than this share.
_MOST_BYTES = 12_288
_WORTH = 1.02
#: Scratch that a candidate may take.
_MOST_CANDIDATE_BYTES = 24_000
# Cycles. ..._LINE: of a table, in each row of the output; ..._FIRST: before the first of several,
# ..._ONLY: where there is one row.
_MISS, _LINE_BYTES = 21, 32
_PLANES_CALL = 137.0
_PRODUCT, _BLOCK, _OUTPUT, _CHANNEL = 1.0, 13.8, 2.6, 20.8
_PAIR, _QUAD = 11.6, 5.7  # two pixels, and a row, of four channels, widened
_MOVED, _MOVE, _FILLED = 1.4, 7.9, 0.8
_PLANES_LINE, _PLANES_FIRST, _PLANES_ONLY = 2.2, 20.0, 33.0
_PIXEL = 75.0  # of four channels, written out
_TAP, _TAPS_ROW, _LOOPED = 7.4, 14.9, 26.0
_COPIED, _REPEATED = 0.24, 0.75  # a byte
_PIXELS_LINE, _PIXELS_FIRST, _PIXELS_ONLY = 3.3, 48.0, 27.0


def depthwise_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    multiplier: int,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    core: str,
    wish: Wish,
) -> KernelCall | str:
    """The call instead of the portable one; ``weights`` are [rows, columns, output channels]."""
    channels = weights.shape[2] // multiplier
    kernel = _wished(window, channels, multiplier, core, wish)
    if isinstance(kernel, str):
        return kernel
    if isinstance(kernel, DspPlanes):
        # Each of the pixels that were made one has the channels anew.
        times = kernel.channels // channels
        tiled = Scaling(*(np.tile(one, times) for one in scaling))
        return planes_call(call, kernel, np.tile(weights, times), tiled, border, limits)
    return pixels_call(call, kernel, weights, scaling, border, limits)


def _wished(
    window: Window, channels: int, multiplier: int, core: str, wish: Wish
) -> DspPlanes | RowDepthwise | str:
    """The kernel that is wished for, what is left open by estimate; or why there is none."""
    planes = PlanesChoices() if wish.is_open else PlanesChoices.read(wish.candidate)
    pixels = PixelsChoices() if wish.is_open else PixelsChoices.read(wish.candidate)
    if isinstance(planes, str) and isinstance(pixels, str):
        return planes
    kernels: list[DspPlanes | RowDepthwise] = []
    if isinstance(planes, PlanesChoices):
        found = _planes(window, channels, multiplier, planes)
        kernels += (replace(kernel, is_compact=wish.compact > 0) for kernel in found)
    if isinstance(pixels, PixelsChoices):
        kernels.append(pixels_kernel(window, channels, multiplier, core))
    most_bytes = _MOST_BYTES if wish.most_scratch is None else wish.most_scratch
    best = best_kernel(kernels, most_bytes)
    return best or "a window that is dilated, or too large for planes"


def _planes(
    window: Window, channels: int, multiplier: int, choices: PlanesChoices
) -> Iterator[DspPlanes]:
    """All kernels over planes, or the chosen one."""
    dense = without_dilation(window)
    if dense is None:
        return
    channels *= window.width // dense.width
    if choices.outputs is None:
        yield from planes_choices(dense, channels, multiplier)
        return
    # A ring that no window reaches the end of would be cut to what windows read.
    period = min(choices.period or 1, dense.output_height)
    sizes = choices.channels or GROUP, period, choices.outputs, choices.part
    kernel = DspPlanes(dense, channels, multiplier, *sizes)
    is_parted = choices.part in PARTS and dense.kernel[0] == 1
    if kernel.form.fits and (is_parted or not choices.part):
        yield kernel


def depthwise_choices(kernel: object) -> Iterator[Choices]:
    """What a candidate can choose beside this kernel, whose own choices come first."""
    if isinstance(kernel, DspPlanes):
        yield kernel.choices
        inputs, repeats = kernel.channels, kernel.multiplier
    elif isinstance(kernel, RowDepthwise):
        yield PixelsChoices()
        inputs, repeats = kernel.channels // kernel.repeats, kernel.repeats
    else:
        return
    for one in _planes(kernel.window, inputs, repeats, PlanesChoices()):
        if one.scratch_bytes <= _MOST_CANDIDATE_BYTES:
            yield one.choices
    yield PixelsChoices()


def best_kernel(
    kernels: list[DspPlanes | RowDepthwise], most_bytes: int = _MOST_BYTES
) -> DspPlanes | RowDepthwise | None:
    """The least scratch that is about as fast as any with ``most_bytes`` of it."""
    if not kernels:
        return None
    least = min(kernel.scratch_bytes for kernel in kernels)
    small = [one for one in kernels if one.scratch_bytes <= max(most_bytes, least)]
    costs = [_cost(kernel) for kernel in small]
    limit = _WORTH * min(costs)
    found = [kernel for kernel, cost in zip(small, costs, strict=True) if cost <= limit]
    return min(found, key=lambda kernel: kernel.scratch_bytes)


def _cost(kernel: DspPlanes | RowDepthwise) -> float:
    if isinstance(kernel, DspPlanes):
        return kernel.window.batch * _planes_cost(kernel)
    return kernel.window.batch * _pixels_cost(kernel)


def _planes_cost(kernel: DspPlanes) -> float:
    w, form, made = kernel.window, kernel.form, kernel.channels * kernel.multiplier
    products = sum(
        depthwise_planes_code.product_of(form, column - form.odd - form.stride * output) is not None
        for column in range(0, form.reach, 2)
        for output in range(form.outputs)
    )
    block = _PRODUCT * form.rows * products + _OUTPUT * form.outputs + _BLOCK
    row = -(-w.output_width // form.outputs) * block
    row += 0 if form.tail == depthwise_planes_code.SINGLE else _CHANNEL
    lines = made * 4 * form.channel_words / _LINE_BYTES
    calls = -(-kernel.channels // kernel.block) * _PLANES_CALL
    first = _PLANES_FIRST if w.output_height > 1 else _PLANES_ONLY
    cost = w.output_height * (made * row + lines * _PLANES_LINE + calls) + lines * first
    return cost + _filling_cost(kernel)


def _filling_cost(kernel: DspPlanes) -> float:
    """All rows of an image, widened and moved."""
    w = kernel.window
    whole, rest = divmod(kernel.channels, kernel.block)
    blocks = [kernel.block] * whole + [rest] * (rest > 0)
    # Less than four channels are widened byte by byte.
    quads = sum(-(-block // GROUP) if block >= GROUP else block for block in blocks)
    kept = max(w.kernel[0] - w.strides[0], 0)
    rows = min(w.height, w.padded_height - w.top) if kept else w.output_height * w.kernel[0]
    cost = rows * quads * (-(-kernel.columns // 2) * _PAIR + _QUAD)
    if kept:
        moves = (w.output_height - 1) // kernel.period
        cost += moves * kernel.channels * (_MOVE + _MOVED * kept * kernel.pitch / 2)
    cost += rows * len(blocks) * w.width * min(1.0, kernel.channels / _LINE_BYTES) * _MISS
    return cost + _FILLED * kernel.channels * kernel.ring * kernel.pitch / 2


def _pixels_cost(kernel: RowDepthwise) -> float:
    w = kernel.window
    taps = w.kernel[0] * w.kernel[1]
    pixel = _PIXEL if w.kernel == UNROLLED else _TAP * taps + _TAPS_ROW * w.kernel[0] + _LOOPED
    groups = kernel.pitch // GROUP
    lines = groups * 4 * group_words(taps) / _LINE_BYTES
    row = w.output_width * groups * pixel + lines * _PIXELS_LINE
    if kernel.is_copied:
        byte = _COPIED if kernel.repeats == 1 else _REPEATED
        row += w.kernel[0] * w.width * kernel.channels * byte
    image = w.height * w.width * kernel.channels / kernel.repeats
    first = _PIXELS_FIRST if w.output_height > 1 else _PIXELS_ONLY
    return w.output_height * row + lines * first + image / _LINE_BYTES * _MISS
