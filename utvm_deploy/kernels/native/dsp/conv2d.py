"""CONV_2D for cores with the DSP extension: over patches, or over columns that windows share.

A candidate says which. Without one, the estimated cycles of all kernels are compared: those of the
products and of their requantization, of filling scratch, and of weights that a small cache loses.
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
    columns_kernels,
)
from utvm_deploy.kernels.native.dsp.patches import (
    DspPatches,
    PatchesChoices,
    patches_call,
    patches_kernel,
    patches_kernels,
)
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE, COMPACT_MOST

_Kernel = TypeVar("_Kernel", DspColumns, DspPatches, DspColumns | DspPatches)

#: Scratch by default at most, and the cycles at which less scratch is taken (1: the fastest).
_MOST_BYTES = 12_288
_MOST_CYCLES = 1.02
#: Scratch of a candidate at most.
_MOST_CANDIDATE_BYTES = 24_000
_TOO_FAR = "windows too far apart for columns"


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
    """The call instead of the portable one; ``weights`` are [outputs, rows, columns, inputs]."""
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
) -> DspColumns | DspPatches | str:
    """The kernel of a wish, or why there is none."""
    sizes = window, inputs, outputs
    most_bytes = _MOST_BYTES if wish.most_scratch is None else wish.most_scratch
    if wish.compact == COMPACT_MOST and groups == 1:
        return _compact_kernel(*sizes, most_bytes)
    if wish.is_open:
        found = [
            *columns_kernels(*sizes, groups),
            *(patches_kernels(*sizes) if groups == 1 else ()),
        ]
        return _least_scratch(found, most_bytes) if found else _TOO_FAR
    columns = ColumnsChoices.read(wish.candidate)
    if isinstance(columns, ColumnsChoices):
        return columns_kernel(*sizes, columns, groups) or _TOO_FAR
    assert wish.candidate is not None
    if wish.candidate.choice("method") == ColumnsChoices.method:
        return columns
    patches = PatchesChoices.read(wish.candidate)
    if isinstance(patches, str):
        return patches
    if groups > 1:
        return f"patches of {groups} groups are not gathered"
    return patches_kernel(*sizes, patches)


def convolution_choices(kernel: object) -> Iterator[Choices]:
    """The choices of this kernel, then all others of the layer."""
    if not isinstance(kernel, DspColumns | DspPatches):
        return
    yield kernel.choices
    sizes = kernel.window, kernel.input_channels, kernel.output_channels
    for one in columns_kernels(*sizes, kernel.groups):
        if one.scratch_bytes <= _MOST_CANDIDATE_BYTES:
            yield one.choices
    if kernel.groups > 1:
        return
    patches = list(patches_kernels(*sizes))
    for step in gemm.steps_for(patches[0].depth):
        for found in patches:
            if found.pixels * found.depth * 2 <= _MOST_CANDIDATE_BYTES:
                yield PatchesChoices(found.pixels, step)


def _compact_kernel(window: Window, inputs: int, outputs: int, most_bytes: int) -> DspPatches:
    """Patches with a step that most convolutions can have: one function multiplies them all."""
    kernels = list(patches_kernels(window, inputs, outputs))
    step = gemm.DEPTH_STEP if kernels[0].depth % gemm.LONG_STEP else gemm.LONG_STEP
    return _least_scratch([one.with_step(step) for one in kernels], most_bytes)


def _least_scratch(kernels: Sequence[_Kernel], most_bytes: int) -> _Kernel:
    """The kernel with the least scratch among those that are about as fast as the fastest.

    Kernels with more than ``most_bytes`` of scratch do not count, unless all have more.
    """
    least = min(kernel.scratch_bytes for kernel in kernels)
    cycles = {
        kernel: kernel.estimated_cycles
        for kernel in kernels
        if kernel.scratch_bytes <= max(most_bytes, least)
    }
    limit = _MOST_CYCLES * min(cycles.values())
    fast = (kernel for kernel, estimated in cycles.items() if estimated <= limit)
    return min(fast, key=lambda kernel: kernel.scratch_bytes)
