"""In which order an image's dimensions are."""

from __future__ import annotations

from collections.abc import Sequence

NHWC, NCHW = "nhwc", "nchw"
_CHANNELS = (1, 3, 4)


def order_of(shape: Sequence[int]) -> str:
    """NHWC, NCHW, or nothing where no dimension has 1, 3 or 4 channels.

    Where both could be, it is NHWC.
    """
    if len(shape) != 4:
        return ""
    if shape[3] in _CHANNELS:
        return NHWC
    return NCHW if shape[1] in _CHANNELS else ""
