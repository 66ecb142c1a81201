"""Which of the two ways a CONV_2D is done: windows gathered as patches, or columns they share.

Without a candidate both are estimated. The estimate counts cycles as the default records' cores
take them: products, requantization, what fills scratch, and weights that a small cache forgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import gemm
from utvm_deploy.kernels.native.dsp.columns import (
    ColumnsChoices,
    DspColumns,
    columns_call,
    columns_kernel,
)
from utvm_deploy.kernels.native.dsp.conv2d import (
    DspConv2D,
    PatchesChoices,
    patches_call,
    patches_kernel,
)
from utvm_deploy.kernels.native.dsp.tile import PIXELS as TILE_PIXELS
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import (
    COMPACT_LITTLE,
    COMPACT_MOST,
)

_Kernel = TypeVar("_Kernel", DspColumns, DspConv2D, DspColumns | DspConv2D)

#: Rows of windows, and pixels of a pointwise convolution, that lie in scratch at once.
ROWS = (1, 2, 3, 4, 6, 8)
PIXELS = (3, 6, 12, 24, 36, 48, 72, 96, 144)
#: Pixels whose patches are gathered at a time.
PATCHES = (3, 6, 9, 12, 18, 24, 36, 48)
#: Scratch by default: at most so much, and less where that costs no more than this share.
_MOST_BYTES = 12_288
_WORTH = 1.02
#: Scratch that a candidate may take.
_MOST_CANDIDATE_BYTES = 24_000
# Cycles.
_PHASE = {1: 3.0, 2: 4.5, 3: 6.0}  # of an inner loop, by pixels
_TILE = {1: 32.0, 2: 40.0, 3: 48.0}
_TURN = 1.5
_QUAD = 2.6
_UNALIGNED = 2.6
_BYTE = 4.5
_BORDER = 1.4
_PUT = 8.0  # a pixel of a phase, beside one for each channel
_FILLED = 0.6  # a value of a border
_TAP = 55.0  # gathered alone, where those of a row lie apart
_MISS, _LINE_BYTES = 22, 32
# Weights that stay in a small cache beside what else goes through it.
_KEPT_BYTES = 2048


def convolution_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    wish: Wish,
    groups: int = 1,
) -> KernelCall | str:
    """The call instead of the portable one; ``weights`` are [outputs, rows, columns, inputs].

    Of several groups only columns are made.
    """
    kernel = _wished(window, weights.shape[3], weights.shape[0] // groups, groups, wish)
    if isinstance(kernel, str):
        return kernel
    if isinstance(kernel, DspColumns):
        kernel = replace(kernel, is_compact=wish.compact > 0)
        found = columns_call(call, kernel, weights, scaling, border, limits)
        return replace(found, heeds_compact=COMPACT_LITTLE)
    found = patches_call(call, kernel, weights, scaling, border, limits)
    return replace(found, heeds_compact=COMPACT_MOST)


def _wished(
    window: Window, inputs: int, outputs: int, groups: int, wish: Wish
) -> DspColumns | DspConv2D | str:
    """The kernel that is wished for, or why there is none."""
    most_bytes = _MOST_BYTES if wish.most_scratch is None else wish.most_scratch
    if wish.compact == COMPACT_MOST and groups == 1:
        return compact_kernel(window, inputs, outputs, most_bytes)
    if wish.is_open:
        best = best_kernel(window, inputs, outputs, most_bytes, groups)
        return best or "windows too far apart for columns"
    columns = ColumnsChoices.read(wish.candidate)
    method = wish.candidate.choice("method") if wish.candidate is not None else None
    if method == ColumnsChoices.method and isinstance(columns, str):
        return columns
    if isinstance(columns, ColumnsChoices):
        rows, pixels = columns.rows or 1, columns.pixels or PIXELS[-1]
        sizes = window, inputs, outputs, rows, pixels
        found = columns_kernel(*sizes, is_packed=columns.packed, groups=groups)
        return found or "windows too far apart for columns"
    patches = PatchesChoices.read(wish.candidate)
    if isinstance(patches, str):
        return patches
    if groups > 1:
        return f"patches of {groups} groups are not gathered"
    return patches_kernel(window, inputs, outputs, patches)


def convolution_choices(kernel: object) -> Iterator[Choices]:
    """What a candidate can choose beside this kernel, whose own choices come first."""
    if not isinstance(kernel, DspColumns | DspConv2D):
        return
    yield kernel.choices
    groups = kernel.groups if isinstance(kernel, DspColumns) else 1
    sizes = kernel.window, kernel.input_channels, kernel.output_channels
    for one in columns_choices(*sizes, groups):
        if one.scratch_bytes <= _MOST_CANDIDATE_BYTES:
            yield one.choices
    if groups > 1:
        return
    depth = DspConv2D(*sizes, 0, 0).depth
    for step in gemm.steps_for(depth):
        for pixels in _patches_pixels(kernel.window):
            if pixels * depth * 2 <= _MOST_CANDIDATE_BYTES:
                yield PatchesChoices(pixels, step)


def best_kernel(
    window: Window, inputs: int, outputs: int, most_bytes: int = _MOST_BYTES, groups: int = 1
) -> DspColumns | DspConv2D | None:
    """The least scratch that is about as fast as any with ``most_bytes`` of it."""
    sizes = window, inputs, outputs
    found: list[tuple[DspColumns | DspConv2D, float]] = [
        (kernel, _columns_cost(kernel)) for kernel in columns_choices(*sizes, groups)
    ]
    if groups == 1:
        found += [(kernel, _patches_cost(kernel)) for kernel in patches_choices(*sizes)]
    if not found:
        return None
    return _frugal(found, most_bytes)


def compact_kernel(
    window: Window, inputs: int, outputs: int, most_bytes: int = _MOST_BYTES
) -> DspConv2D:
    """Patches with a step that most convolutions can have: one code does them all."""
    plain = DspConv2D(window, inputs, outputs, 0, 0)
    step = gemm.LONG_STEP if plain.depth % gemm.LONG_STEP == 0 else gemm.DEPTH_STEP
    found = [replace(one, step=step) for one in patches_choices(window, inputs, outputs)]
    return _frugal([(kernel, _patches_cost(kernel)) for kernel in found], most_bytes)


def _frugal(found: Sequence[tuple[_Kernel, float]], most_bytes: int) -> _Kernel:
    """Of kernels and their costs, as ``best_kernel`` says."""
    least = min(kernel.scratch_bytes for kernel, _ in found)
    small = [one for one in found if one[0].scratch_bytes <= max(most_bytes, least)]
    limit = _WORTH * min(cost for _, cost in small)
    return min((k for k, cost in small if cost <= limit), key=lambda k: k.scratch_bytes)


def patches_choices(window: Window, inputs: int, outputs: int) -> Iterator[DspConv2D]:
    """Kernels over patches with the best step, all numbers of pixels."""
    plain = patches_kernel(window, inputs, outputs)
    assert isinstance(plain, DspConv2D)
    for pixels in _patches_pixels(window):
        yield replace(plain, pixels=pixels)


def _patches_pixels(window: Window) -> list[int]:
    """Pixels to gather at a time; all at once are the last that make a difference."""
    outputs = window.output_height * window.output_width
    return [pixels for pixels in PATCHES if pixels < outputs + TILE_PIXELS]


def columns_choices(
    window: Window, inputs: int, outputs: int, groups: int = 1
) -> Iterator[DspColumns]:
    """All kernels over columns, inputs and outputs of each group."""
    for is_packed in (False, True):
        first = columns_kernel(
            *(window, inputs, outputs, 1, PIXELS[0]), is_packed=is_packed, groups=groups
        )
        if first is None:
            continue
        last = window.output_height
        if first.is_one_row:
            last *= window.output_width
        for size in PIXELS if first.is_one_row else ROWS:
            yield replace(first, pixels=size) if first.is_one_row else replace(first, rows=size)
            # All at once are the last that make a difference.
            if size >= last:
                break


def _columns_cost(kernel: DspColumns) -> float:
    w = kernel.window
    pairs = -(-kernel.output_channels // 2)
    phases = kernel.depth / 2
    turns = 0.0 if kernel.step == kernel.depth else kernel.depth / kernel.step * _TURN + 8
    cost = 0.0
    passes = 0
    for one in kernel.blocks:
        whole, rest = divmod(one.width, 3)
        row = whole * (phases * _PHASE[3] + turns + _TILE[3]) + 14
        if rest:
            row += phases * _PHASE[rest] + turns + _TILE[rest]
        times = one.times * max(one.phases, 1) * kernel.groups
        cost += times * pairs * (one.rows * row + 20)
        inside = min(kernel.columns_of(one.width), w.width * w.height)
        quad = _QUAD + (_UNALIGNED if kernel.input_channels % 4 else 0)
        pixel = kernel.quads * quad + (4 if kernel.column != kernel.input_channels else 0)
        if kernel.is_packed:
            pixel = kernel.input_channels * _BYTE
        cost += times * (60 + one.rows * w.kernel[0] * (40 + inside * pixel))
        if kernel.phases:
            put = one.width * (_PUT + kernel.output_channels)
            border = one.rows * kernel.columns_of(one.width) * kernel.column * _FILLED
            cost += times * (one.rows * put + (border if w.is_padded else 0))
        passes += times
    weights = kernel.groups * pairs * 2 * kernel.depth
    return w.batch * (cost + _misses(passes // kernel.groups, weights))


def _patches_cost(kernel: DspConv2D) -> float:
    w = kernel.window
    outputs = w.output_height * w.output_width
    blocks = -(-outputs // kernel.pixels)
    pairs = -(-kernel.output_channels // 2)
    turns = 0.0 if kernel.step == kernel.depth else kernel.depth / kernel.step * _TURN + 8
    tile = kernel.depth / 2 * _PHASE[3] + turns + _TILE[3]
    run = w.kernel[1] * kernel.input_channels
    gather = 64 + kernel.depth / 4 * _QUAD + 6 * w.kernel[0]
    if kernel.input_channels % 4:
        gather = 50 + kernel.depth / 4 * _QUAD + w.kernel[0] * (10 + run / 4 * 3)
        gather *= _BORDER if w.is_padded else 1
    if w.kernel[1] > 1 and w.dilations[1] > 1:
        gather += w.kernel[0] * w.kernel[1] * _TAP
    cost = -(-outputs // 3) * pairs * tile + outputs * gather + blocks * pairs * 34
    return w.batch * (cost + _misses(blocks, pairs * 2 * kernel.depth))


def _misses(passes: int, weights_bytes: int) -> float:
    """Cycles for weights that are read in each of several passes."""
    again = passes if weights_bytes > _KEPT_BYTES else 1
    return again * weights_bytes / _LINE_BYTES * _MISS
