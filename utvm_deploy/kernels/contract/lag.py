"""How many bytes a kernel's output must begin before its input, so that the two may overlap.

A kernel works in steps. In each step it reads its input from some byte on, and then writes its
output up to some byte. It may overwrite what no later step reads:

    source - result >= max over steps i of (end of the writes of i - first read of any later step)

where source and result are the addresses of input and output. The property ``lag`` of a kernel
class gives this distance. The output of a class without it does not overlap its input. If you
change the order in which a kernel reads and writes, change its ``lag``.
tests/kernels/test_overlap.py runs kernels at exactly this distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from utvm_deploy.kernels.contract.window import Window

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lag:
    """How far the source must begin after the result, if the two overlap."""

    least_bytes: int  # negative: the result may begin after the source
    # The distance is a multiple of this: such a kernel finishes a channel before the next.
    unit_bytes: int = 1


@lru_cache(maxsize=4096)
def lag_of(kernel: object) -> Lag | None:
    """The lag of a kernel; None if its output must not overlap its input.

    Cached, because it is counted pixel by pixel and every plan of a model asks for it.
    """
    found = getattr(kernel, "lag", None)
    assert found is None or isinstance(found, Lag)
    return found


def lag_by_pixels(
    w: Window, inputs: int, outputs: int, pixels: int, *, mixed: bool = False
) -> Lag | None:
    """The lag of a kernel that computes ``pixels`` pixels of the output in each step.

    ``inputs`` and ``outputs`` are channels. ``mixed``: a step writes before it has read all.
    """
    if w.batch != 1:
        return None  # a later step may read parts of an earlier image
    rows = np.maximum(np.arange(w.output_height) * w.strides[0] - w.top, 0)
    columns = np.maximum(np.arange(w.output_width) * w.strides[1] - w.left, 0)
    windows = (rows[:, None] * w.width + columns).reshape(-1) * inputs
    first = np.arange(0, windows.size, pixels)
    reads = np.minimum.accumulate(windows[::-1])[::-1][first]
    writes = np.minimum(first + pixels, windows.size) * outputs
    return Lag(least_lag(reads, writes, mixed=mixed))


def least_lag(reads: Places, writes: Places, *, mixed: bool = False) -> int:
    """The lag in bytes, from the first byte that each step reads and the end of its writes.

    ``mixed``: a step writes before it has read all.
    """
    later = np.minimum.accumulate(reads[::-1])[::-1]
    ahead = writes - later if mixed else writes[:-1] - later[1:]
    return int(ahead.max()) if ahead.size else -int(np.iinfo(np.int32).max)
