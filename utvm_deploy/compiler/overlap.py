"""How far a kernel's output must begin before its input, so that both may share bytes.

A kernel works in steps. In each it reads its input from some byte on, and then writes its output up
to some byte. What it writes may lie on what no later step reads:

    source - result >= max over steps i of (end of the writes of i - first read of any later step)

where source and result are where both begin. Who changes the order in which a kernel reads and
writes changes its steps here; tests/kernels/test_overlap.py runs kernels with just this distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch

import numpy as np
import numpy.typing as npt

from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.columns import DspColumns
from utvm_deploy.kernels.native.dsp.conv2d import DspConv2D
from utvm_deploy.kernels.native.dsp.planes import DspPlanes
from utvm_deploy.kernels.native.dsp.pool import DspPool
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lag:
    """How many bytes the source begins behind the result, if they are to share any."""

    least_bytes: int  # negative: the result may begin behind the source
    # Of what the distance must be a multiple, because channels are done one after the other.
    unit_bytes: int = 1


@dataclass(frozen=True)
class Overlap:
    """Two tensors, by position in ``Graph.tensors``, that may share bytes."""

    source: int
    result: int
    lag: Lag


def overlap_of(graph: Graph, call: KernelCall) -> Overlap | None:
    """What a call's output may do to its input; None if nothing is known of the kernel."""
    lag = _known_lag(call.kernel)
    tensors = [a.tensor for a in call.arguments if isinstance(a, TensorArgument)]
    if lag is None or len(tensors) != 2 or graph.tensors[tensors[0]].data is not None:
        return None
    source, result = tensors
    # Where the steps tell nothing, both may lie anywhere.
    least = max(lag.least_bytes, -graph.tensors[source].size_bytes)
    return Overlap(source, result, Lag(least, lag.unit_bytes))


def may_share(call: KernelCall) -> bool:
    """Whether an output may share bytes with an input, so that neither may be ``restrict``."""
    return bool(call.in_place) or _known_lag(call.kernel) is not None


@lru_cache(maxsize=4096)
def _known_lag(kernel: object) -> Lag | None:
    """``lag_of``, which counts pixel by pixel: every plan of a model asks for it anew."""
    return lag_of(kernel)


@singledispatch
def lag_of(kernel: object) -> Lag | None:
    """What is known of a kernel; None: its output must lie apart."""
    return None


@lag_of.register
def _of_patches(kernel: DspConv2D) -> Lag | None:
    return _by_pixels(kernel.window, kernel.input_channels, kernel.output_channels, kernel.pixels)


@lag_of.register
def _of_columns(kernel: DspColumns) -> Lag | None:
    pixels = kernel.pixels if kernel.is_one_row else kernel.rows * kernel.window.output_width
    sizes = kernel.groups * kernel.input_channels, kernel.groups * kernel.output_channels, pixels
    # Each phase, and each group, of some rows reads, after outputs of another were written.
    return _by_pixels(kernel.window, *sizes, mixed=kernel.phases > 0 or kernel.groups > 1)


@lag_of.register
def _of_gathered(kernel: GatheredConv2D) -> Lag | None:
    if not kernel.is_gathered:
        return None  # all pixels are read for each group of channels
    sizes = kernel.groups * kernel.input_channels, kernel.groups * kernel.output_channels
    # Each group of some pixels reads, after outputs of another were written.
    return _by_pixels(kernel.window, *sizes, kernel.pixels, mixed=kernel.groups > 1)


@lag_of.register
def _of_rows(kernel: RowDepthwise) -> Lag | None:
    inputs = kernel.channels // kernel.repeats
    width = kernel.window.output_width
    return _by_pixels(kernel.window, inputs, kernel.channels, width, mixed=not kernel.is_copied)


@lag_of.register
def _of_pool(kernel: DspPool) -> Lag | None:
    return _by_pixels(kernel.window, kernel.channels, kernel.channels, 1, mixed=True)


@lag_of.register
def _of_planes(kernel: DspPlanes) -> Lag | None:
    w, channels = kernel.window, kernel.channels
    is_whole = kernel.block >= channels
    if w.batch != 1 or not (is_whole or kernel.multiplier == 1):
        return None
    rows = np.arange(w.output_height)
    kept = max(w.kernel[0] - w.strides[0], 0)  # of the window's rows, from the row before
    reads = np.maximum(rows * w.strides[0] - w.top + kept, 0) * w.width * channels
    reads[0] = 0
    writes = (rows + 1) * w.output_width * channels * kernel.multiplier
    least = _least(reads, writes, mixed=False)
    return Lag(least) if is_whole else Lag(least, unit_bytes=channels)


def _by_pixels(
    w: Window, inputs: int, outputs: int, pixels: int, *, mixed: bool = False
) -> Lag | None:
    """Steps of so many pixels of the output, in their order."""
    if w.batch != 1:
        return None  # parts of an image may be left for later
    rows = np.maximum(np.arange(w.output_height) * w.strides[0] - w.top, 0)
    columns = np.maximum(np.arange(w.output_width) * w.strides[1] - w.left, 0)
    windows = (rows[:, None] * w.width + columns).reshape(-1) * inputs
    first = np.arange(0, windows.size, pixels)
    reads = np.minimum.accumulate(windows[::-1])[::-1][first]
    writes = np.minimum(first + pixels, windows.size) * outputs
    return Lag(_least(reads, writes, mixed))


def _least(reads: _Places, writes: _Places, mixed: bool) -> int:
    """``reads``: first byte, ``writes``: end, of each step; ``mixed``: it writes while it reads."""
    later = np.minimum.accumulate(reads[::-1])[::-1]
    ahead = writes - later if mixed else writes[:-1] - later[1:]
    return int(ahead.max()) if ahead.size else -int(np.iinfo(np.int32).max)
