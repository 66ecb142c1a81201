"""Windows that give the same results from less, or along the axis that kernels are made for."""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.window import Window

#: Tables of weights are repeated as often as columns lie apart.
_MOST_APART = 4


def simplified(
    window: Window, weights: Array, *, turns_dilated: bool = False
) -> tuple[Window, Array]:
    """The window and weights, of any outputs and inputs, [_, rows, columns, _].

    ``turns_dilated``: whether columns whose taps lie apart become rows, too.
    """
    for axis in (0, 1):
        window, weights = _without_unseen(window, weights, axis)
    if window.dilations[0] > 1 and not turns_dilated:
        return window, weights
    return _turned(window, weights)


def without_dilation(window: Window) -> Window | None:
    """The window over the same bytes, had pixels as many channels more as its columns lie apart.

    Pixels that one window sees are then neighbours. None where that leaves a rest, or too many.
    """
    apart = window.dilations[1]
    if (window.dilations[0] > 1 and window.kernel[0] > 1) or apart > _MOST_APART:
        return None
    sizes = (window.width, window.output_width, window.left)
    if apart > 1 and (window.strides[1] > 1 or any(size % apart for size in sizes)):
        return None
    width, output_width, left = (size // apart for size in sizes)
    return replace(window, width=width, output_width=output_width, left=left, dilations=(1, 1))


def _without_unseen(window: Window, weights: Array, axis: int) -> tuple[Window, Array]:
    """Without taps that lie beside the image for each output: the reference leaves them out."""
    step, apart = window.strides[axis], window.dilations[axis]
    size, outputs, before = (
        (window.height, window.output_height, window.top),
        (window.width, window.output_width, window.left),
    )[axis]
    seen = [
        tap
        for tap in range(window.kernel[axis])
        if any(0 <= at * step - before + tap * apart < size for at in range(outputs))
    ]
    if not seen or len(seen) == window.kernel[axis] or before < seen[0] * apart:
        return window, weights
    first, count = seen[0], seen[-1] - seen[0] + 1
    kept = weights.take(range(first, first + count), axis=1 + axis)
    if axis == 0:
        kernel, top = (count, window.kernel[1]), before - first * apart
        return replace(window, kernel=kernel, top=top), kept
    kernel, left = (window.kernel[0], count), before - first * apart
    return replace(window, kernel=kernel, left=left), kept


def _turned(window: Window, weights: Array) -> tuple[Window, Array]:
    """A column of pixels as a row: they lie in memory alike."""
    w = window
    if not (w.width == w.output_width == w.kernel[1] == 1) or w.left:
        return window, weights
    row = Window(
        *(w.batch, 1, w.height, 1, w.output_height),
        *((1, w.kernel[0]), (1, w.strides[0]), (1, w.dilations[0]), 0, w.top),
    )
    return row, weights.swapaxes(1, 2)
