"""How far a kernel's output must begin before its input, so that both may share bytes.

A kernel works in steps. In each step it reads its input from some byte on, and then writes its
output up to some byte. It may write over what no later step reads:

    source - result >= max over steps i of (end of the writes of i - first read of any later step)

where source and result are where both begin. A kernel class with a property ``lag`` tells this
distance; the output of any other kernel lies apart from its input. Who changes the order in which
a kernel reads and writes changes its ``lag``; tests/kernels/test_overlap.py runs kernels at just
this distance.
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
    """How many bytes the source begins behind the result, if they are to share any."""

    least_bytes: int  # negative: the result may begin behind the source
    # Of what the distance must be a multiple, because channels are done one after the other.
    unit_bytes: int = 1


@lru_cache(maxsize=4096)
def lag_of(kernel: object) -> Lag | None:
    """The lag that a kernel tells; None: its output must lie apart.

    Kept, because it is counted pixel by pixel and every plan of a model asks for it.
    """
    found = getattr(kernel, "lag", None)
    assert found is None or isinstance(found, Lag)
    return found


def lag_by_pixels(
    w: Window, inputs: int, outputs: int, pixels: int, *, mixed: bool = False
) -> Lag | None:
    """The lag of a kernel whose steps are ``pixels`` of the output, in their order.

    ``inputs`` and ``outputs`` are channels; ``mixed``: a step writes while it reads.
    """
    if w.batch != 1:
        return None  # parts of an image may be left for later
    rows = np.maximum(np.arange(w.output_height) * w.strides[0] - w.top, 0)
    columns = np.maximum(np.arange(w.output_width) * w.strides[1] - w.left, 0)
    windows = (rows[:, None] * w.width + columns).reshape(-1) * inputs
    first = np.arange(0, windows.size, pixels)
    reads = np.minimum.accumulate(windows[::-1])[::-1][first]
    writes = np.minimum(first + pixels, windows.size) * outputs
    return Lag(least_lag(reads, writes, mixed=mixed))


def least_lag(reads: Places, writes: Places, *, mixed: bool = False) -> int:
    """Of the first byte that each step reads, and the end of what it writes.

    ``mixed``: a step writes while it reads.
    """
    later = np.minimum.accumulate(reads[::-1])[::-1]
    ahead = writes - later if mixed else writes[:-1] - later[1:]
    return int(ahead.max()) if ahead.size else -int(np.iinfo(np.int32).max)
