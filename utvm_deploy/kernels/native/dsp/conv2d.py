"""CONV_2D for cores with the DSP extension: over patches, or over columns that windows share.

A candidate says which. Without one, the estimated cycles of all kernels are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Wish
from utvm_deploy.kernels.native.dsp import patches_code
from utvm_deploy.kernels.native.dsp.columns import (
    ColumnsChoices,
    DspColumns,
    columns_call,
    columns_kernel,
    columns_kernels,
)
from utvm_deploy.kernels.native.dsp.estimate import MOST_CANDIDATE_BYTES, best_kernel, scratch_bytes
from utvm_deploy.kernels.native.dsp.patches import (
    DspPatches,
    PatchesChoices,
    patches_call,
    patches_kernel,
    patches_kernels,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.records.candidate import COMPACT_MOST

_TOO_FAR = "windows too far apart for columns"


def convolution_call(call: KernelCall, tables: ConvolutionTables, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    kernel = _wished(tables, wish)
    if isinstance(kernel, DspColumns):
        kernel = replace(kernel, is_compact=wish.compact > 0)
        return columns_call(call, kernel, tables, scaling)
    if isinstance(kernel, DspPatches):
        return patches_call(call, kernel, tables, scaling)
    return kernel


def _wished(tables: ConvolutionTables, wish: Wish) -> DspColumns | DspPatches | str:
    """The kernel of a candidate, or the best of all, or why there is none."""
    outputs, _, _, inputs = tables.weights.shape
    groups = tables.inputs // inputs
    sizes = tables.window, inputs, outputs // groups, groups
    if wish.compact == COMPACT_MOST and groups == 1:
        # One function for most convolutions.
        is_long = next(patches_kernels(*sizes)).depth % patches_code.LONG_STEP == 0
        step = patches_code.LONG_STEP if is_long else patches_code.DEPTH_STEP
        return best_kernel(patches_kernels(*sizes, step), wish) or _TOO_FAR
    if wish.is_open:
        kernels: list[DspColumns | DspPatches] = [*columns_kernels(*sizes)]
        return best_kernel([*kernels, *patches_kernels(*sizes)], wish) or _TOO_FAR
    columns = ColumnsChoices.read(wish.candidate)
    if isinstance(columns, ColumnsChoices):
        return columns_kernel(*sizes, columns) or _TOO_FAR
    assert wish.candidate is not None
    if wish.candidate.choice("method") == ColumnsChoices.method:
        return columns
    patches = PatchesChoices.read(wish.candidate)
    return patches if isinstance(patches, str) else patches_kernel(*sizes, patches)


def convolution_choices(kernel: object) -> Iterator[Choices]:
    """The choices of this kernel, then all others of the layer."""
    if not isinstance(kernel, DspColumns | DspPatches):
        return
    yield kernel.choices
    sizes = kernel.window, kernel.input_channels, kernel.output_channels, kernel.groups
    for one in columns_kernels(*sizes):
        if scratch_bytes(one) <= MOST_CANDIDATE_BYTES:
            yield one.choices
    patches = list(patches_kernels(*sizes))
    for step in patches_code.steps_for(patches[0].depth) if patches else ():
        for found in patches:
            if 2 * found.pixels * found.depth <= MOST_CANDIDATE_BYTES:
                yield PatchesChoices(found.pixels, step)
