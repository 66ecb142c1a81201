"""CONV_2D for cores with the DSP extension: over patches, or over columns that windows share.

A candidate says which. Without one, the estimated cycles of all kernels are compared: those of the
products and of their requantization, of filling scratch, and of weights that a small cache loses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from utvm_deploy.kernels.native.dsp.estimate import MOST_CANDIDATE_BYTES, best_kernel
from utvm_deploy.kernels.native.dsp.patches import (
    DspPatches,
    PatchesChoices,
    patches_call,
    patches_kernel,
    patches_kernels,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.records.candidate import COMPACT_LITTLE, COMPACT_MOST

_TOO_FAR = "windows too far apart for columns"


def convolution_call(
    call: KernelCall, tables: ConvolutionTables, wish: Wish, groups: int = 1
) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    weights = tables.weights
    kernel = _wished(tables.window, weights.shape[3], weights.shape[0] // groups, groups, wish)
    if isinstance(kernel, str):
        return kernel
    constants = weights, scaling, tables.border, tables.limits
    if isinstance(kernel, DspColumns):
        kernel = replace(kernel, is_compact=wish.compact > 0)
        return replace(columns_call(call, kernel, *constants), heeds_compact=COMPACT_LITTLE)
    return replace(patches_call(call, kernel, *constants), heeds_compact=COMPACT_MOST)


def _wished(
    window: Window, inputs: int, outputs: int, groups: int, wish: Wish
) -> DspColumns | DspPatches | str:
    """The kernel of a wish, or why there is none."""
    sizes = window, inputs, outputs
    gathered = list(patches_kernels(*sizes)) if groups == 1 else []
    if wish.compact == COMPACT_MOST and gathered:
        return best_kernel(map(_with_common_step, gathered), wish) or _TOO_FAR
    if wish.is_open:
        kernels: list[DspColumns | DspPatches] = [*columns_kernels(*sizes, groups), *gathered]
        return best_kernel(kernels, wish) or _TOO_FAR
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
        if one.scratch_bytes <= MOST_CANDIDATE_BYTES:
            yield one.choices
    if kernel.groups > 1:
        return
    patches = list(patches_kernels(*sizes))
    for step in gemm.steps_for(patches[0].depth):
        for found in patches:
            if found.pixels * found.depth * 2 <= MOST_CANDIDATE_BYTES:
                yield PatchesChoices(found.pixels, step)


def _with_common_step(kernel: DspPatches) -> DspPatches:
    """The kernel with a step that most convolutions can have: one function multiplies them all."""
    return kernel.with_step(gemm.DEPTH_STEP if kernel.depth % gemm.LONG_STEP else gemm.LONG_STEP)
