"""What can be chosen in DSP kernels: for each operator all candidates, the default first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import dense_tables, gemm
from utvm_deploy.kernels.native.dsp.columns import DspColumns
from utvm_deploy.kernels.native.dsp.conv2d import DspConv2D
from utvm_deploy.kernels.native.dsp.convolution import COLUMNS, PATCHES, columns_choices
from utvm_deploy.kernels.native.dsp.dense import NARROW, DspDense
from utvm_deploy.kernels.native.dsp.depthwise import PIXELS, PLANES
from utvm_deploy.kernels.native.dsp.narrow import DspNarrowDense
from utvm_deploy.kernels.native.dsp.planes import DspPlanes, planes_choices
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise
from utvm_deploy.kernels.native.window_rewrites import without_dilation
from utvm_deploy.records.candidate import Candidate

FAMILY = "dsp"
#: Scratch that a candidate may take.
_MOST_SCRATCH_BYTES = 24_000


def dsp_space(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Every candidate of the family; () where it has no kernel."""
    try:
        kernel = lower(graph, operator, core, Candidate(FAMILY)).kernel
    except UnsupportedOperator:
        return ()
    if isinstance(kernel, DspColumns | DspConv2D):
        found = [_of_convolution(kernel), *_columns(kernel), *_patches(kernel)]
    elif isinstance(kernel, DspPlanes):
        found = [_of_planes(kernel), *_planes(kernel.window, kernel.channels, kernel.multiplier)]
        found.append(Candidate.of(FAMILY, method=PIXELS))
    elif isinstance(kernel, RowDepthwise):
        inputs = kernel.channels // kernel.repeats
        found = [Candidate.of(FAMILY, method=PIXELS)]
        found += _planes(kernel.window, inputs, kernel.repeats)
    elif isinstance(kernel, DspDense):
        found = [_of_dense(kernel), *_dense(kernel)]
    elif isinstance(kernel, DspNarrowDense):
        found = [Candidate.of(FAMILY, method=NARROW), *_dense(kernel)]
    else:
        found = [Candidate(FAMILY)]
    return tuple(dict.fromkeys(found))


def _of_convolution(kernel: DspColumns | DspConv2D) -> Candidate:
    if isinstance(kernel, DspConv2D):
        return Candidate.of(FAMILY, pixels=kernel.pixels, step=kernel.step)
    if kernel.is_one_row:
        return Candidate.of(FAMILY, method=COLUMNS, pixels=kernel.pixels)
    packed = {"packed": 1} if kernel.is_packed else {}
    return Candidate.of(FAMILY, method=COLUMNS, rows=kernel.rows, **packed)


def _columns(kernel: DspColumns | DspConv2D) -> Iterator[Candidate]:
    groups = kernel.groups if isinstance(kernel, DspColumns) else 1
    sizes = kernel.input_channels, kernel.output_channels
    for one in columns_choices(kernel.window, *sizes, groups):
        if one.scratch_bytes <= _MOST_SCRATCH_BYTES:
            yield _of_convolution(one)


def _patches(kernel: DspColumns | DspConv2D) -> Iterator[Candidate]:
    if isinstance(kernel, DspColumns) and kernel.groups > 1:
        return
    window = kernel.window
    plain = DspConv2D(window, kernel.input_channels, kernel.output_channels, 0, 0)
    outputs = window.output_height * window.output_width
    for step in gemm.steps_for(plain.depth):
        for pixels in PATCHES:
            is_small = pixels * plain.depth * 2 <= _MOST_SCRATCH_BYTES
            # All pixels at once are the last that make a difference.
            if pixels < outputs + gemm.PIXELS and is_small:
                yield _of_convolution(replace(plain, pixels=pixels, step=step))


def _of_planes(kernel: DspPlanes) -> Candidate:
    part = {"part": kernel.part} if kernel.part else {}
    choices = {"channels": kernel.block, "outputs": kernel.outputs, "period": kernel.period}
    return Candidate.of(FAMILY, method=PLANES, **choices, **part)


def _planes(window: Window, channels: int, multiplier: int) -> Iterator[Candidate]:
    dense = without_dilation(window)
    if dense is None:
        return
    for one in planes_choices(dense, channels * (window.width // dense.width), multiplier):
        if one.scratch_bytes <= _MOST_SCRATCH_BYTES:
            yield _of_planes(one)


def _of_dense(kernel: DspDense) -> Candidate:
    tail = {"tail": kernel.tail} if kernel.tail else {}
    return Candidate.of(FAMILY, step=kernel.step, preload=int(kernel.preload), **tail)


def _dense(kernel: DspDense | DspNarrowDense) -> Iterator[Candidate]:
    layer = kernel.batch, kernel.inputs, kernel.outputs, kernel.per_channel
    for tail in sorted({0, kernel.outputs % dense_tables.OUTPUTS} - {dense_tables.PAIR}):
        for step in dense_tables.STEPS:
            for preload in (False, True):
                yield _of_dense(DspDense(*layer, step, preload, tail))


DSP_SPACES: Mapping[str, Callable[[Graph, Operator, str], tuple[Candidate, ...]]] = {
    kind: dsp_space for kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
}
