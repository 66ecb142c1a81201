"""Windows with the same results from fewer taps, or along the axis that kernels are made for."""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.window import Window

#: The largest dilation of columns that ``without_dilation`` removes.
_MOST_DILATION = 4


def simplified(
    window: Window, weights: Array, *, turns_dilated: bool = False
) -> tuple[Window, Array]:
    """The window and its weights [_, rows, columns, _], without taps that no output needs.

    An image of one column becomes one row. If its taps are dilated, it does so only with
    ``turns_dilated``.
    """
    for axis in (0, 1):
        window, weights = _without_unseen_taps(window, weights, axis)
    if window.dilations[0] > 1 and not turns_dilated:
        return window, weights
    return _turned(window, weights)


def without_dilation(window: Window) -> Window | None:
    """The window over the same bytes without dilation, or None if there is none.

    With a dilation of d columns, d pixels count as one pixel with d times the channels. So the taps
    of a window are neighbours. The sizes must be multiples of d, which is 4 at most.
    """
    dilation = window.dilations[1]
    if (window.dilations[0] > 1 and window.kernel[0] > 1) or dilation > _MOST_DILATION:
        return None
    sizes = (window.width, window.output_width, window.left)
    if dilation > 1 and (window.strides[1] > 1 or any(size % dilation for size in sizes)):
        return None
    width, output_width, left = (size // dilation for size in sizes)
    return replace(window, width=width, output_width=output_width, left=left, dilations=(1, 1))


def _without_unseen_taps(window: Window, weights: Array, axis: int) -> tuple[Window, Array]:
    """Without taps that are outside the image for every output: the reference leaves them out."""
    step, dilation = window.strides[axis], window.dilations[axis]
    size, outputs, before = (
        (window.height, window.output_height, window.top),
        (window.width, window.output_width, window.left),
    )[axis]
    seen = [
        tap
        for tap in range(window.kernel[axis])
        if any(0 <= at * step - before + tap * dilation < size for at in range(outputs))
    ]
    if not seen or len(seen) == window.kernel[axis] or before < seen[0] * dilation:
        return window, weights
    first, count = seen[0], seen[-1] - seen[0] + 1
    kept = weights.take(range(first, first + count), axis=1 + axis)
    before -= first * dilation
    if axis == 0:
        return replace(window, kernel=(count, window.kernel[1]), top=before), kept
    return replace(window, kernel=(window.kernel[0], count), left=before), kept


def _turned(window: Window, weights: Array) -> tuple[Window, Array]:
    """An image of one column as one row, which has the same bytes."""
    w = window
    if not (w.width == w.output_width == w.kernel[1] == 1) or w.left:
        return window, weights
    row = Window(
        *(w.batch, 1, w.height, 1, w.output_height),
        *((1, w.kernel[0]), (1, w.strides[0]), (1, w.dilations[0]), 0, w.top),
    )
    return row, weights.swapaxes(1, 2)
