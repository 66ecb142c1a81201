"""CONV_2D and DEPTHWISE_CONV_2D for cores with the DSP extension: the choice of a kernel.

CONV_2D is done over patches, or over columns that windows share. DEPTHWISE_CONV_2D is done over
planes, or by pixels. A candidate says which. Without one, the estimated cycles of all kernels are
compared. The estimates count cycles as the cores of the default records take them: products,
requantization, what fills scratch, and cache lines that are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Layer, ListCandidates, Wish
from utvm_deploy.kernels.native.dsp.assembly import patches_code
from utvm_deploy.kernels.native.dsp.assembly.depthwise_twins_code import twins_scaling
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8_UNSHIFTED
from utvm_deploy.kernels.native.dsp.assembly.winograd_transforms import MOST_EXPANDED
from utvm_deploy.kernels.native.dsp.columns import (
    ColumnsChoices,
    DspColumns,
    columns_kernel,
    columns_kernels,
)
from utvm_deploy.kernels.native.dsp.depthwise_pixels import DspPixels, DspRowProduct, PixelsChoices
from utvm_deploy.kernels.native.dsp.depthwise_planes import DspPlanes, PlanesChoices, planes_kernels
from utvm_deploy.kernels.native.dsp.depthwise_twins import DspTwins, TwinsChoices, twins_kernels
from utvm_deploy.kernels.native.dsp.patches import (
    DspPatches,
    PatchesChoices,
    patches_kernel,
    patches_kernels,
)
from utvm_deploy.kernels.native.dsp.shared_layers import (
    SharedPatches,
    SharedPixels,
    shared_patches,
    shares_driver,
)
from utvm_deploy.kernels.native.dsp.winograd import (
    FACTOR_BITS,
    MOST_WINOGRAD_BYTES,
    DspWinograd,
    WinogradChoices,
    winograd_kernels,
)
from utvm_deploy.kernels.native.estimated import (
    MOST_CANDIDATE_BYTES,
    best_kernel,
    choices_of_small,
    scratch_bytes,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables, convolution_tables
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.native.single_rounding import single_scaling
from utvm_deploy.records.candidate import COMPACT_MOST, Candidate

#: How much longer a depthwise layer may take for a driver that it shares with others, a factor.
_MOST_SLOWER = 1.5
_AnyKernel: TypeAlias = DspColumns | DspPatches | DspWinograd | DspPlanes | DspPixels | DspTwins
_NO_HALVES = "no kernel unpacks the int4 weights of several groups"
_TOO_FAR = "windows too far apart for columns"


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    tables = convolution_tables(layer, turns_dilated=True)
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    kernel: _AnyKernel | str | None = None
    if wish.compact == COMPACT_MOST and shares_driver(tables, len(tables.weights), scaling):
        kernel = _shared_kernel(tables, wish)
    if kernel is None:
        is_depthwise = tables.is_depthwise
        kernel = (
            _depthwise_kernel(tables, wish, scaling)
            if is_depthwise
            else _conv2d_kernel(tables, wish)
        )
    if isinstance(kernel, str):
        return kernel
    call = kernel.make_call(layer.portable, tables, scaling)
    if wish.compact == COMPACT_MOST or isinstance(kernel, SharedPixels):
        return call
    # Strips share the call, and each of them asks for this.
    return replace(call, rounded_once=cache(partial(_rounded_once, kernel, call, tables, scaling)))


def _rounded_once(
    kernel: _AnyKernel, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
) -> KernelCall | None:
    """The call with one rounding of each output, if the layer has one."""
    once = kernel.rounded_once
    if once is None:
        return None
    bits = FACTOR_BITS[kernel.outputs] if isinstance(kernel, DspWinograd) else 0
    quantized = tables.zero_point, tables.limits
    found = single_scaling(scaling, tables.weights, *quantized, factor_bits=bits)
    return None if found is None else once.make_call(call, tables, found)


def _shared_kernel(tables: ConvolutionTables, wish: Wish) -> SharedPatches | SharedPixels | None:
    """The kernel whose driver all layers share; None if it suits the layer badly."""
    outputs, _, _, inputs = tables.weights.shape
    window, groups = tables.window, tables.inputs // inputs
    if not tables.is_depthwise:
        # One function for all convolutions: of a step that each padded depth is a multiple of.
        sizes = window, inputs, outputs // groups, groups
        plain = patches_kernels(*sizes, patches_code.DEPTH_STEP, halves=tables.halves)
        return best_kernel(map(shared_patches, plain), wish)
    multiplier = outputs // tables.inputs
    product = DspRowProduct(window.kernel)
    pixels = SharedPixels(window, outputs, product, multiplier, tables.halves)
    others = planes_kernels(window, tables.inputs, multiplier, PlanesChoices())
    fastest = min((one.estimated_cycles for one in others), default=pixels.estimated_cycles)
    is_small = wish.most_scratch is None or scratch_bytes(pixels) <= wish.most_scratch
    is_fast = pixels.estimated_cycles <= _MOST_SLOWER * fastest
    return pixels if is_small and is_fast else None


def _conv2d_kernel(
    tables: ConvolutionTables, wish: Wish
) -> DspColumns | DspPatches | DspWinograd | str:
    """The kernel of a candidate, or the best of all, or why there is none."""
    outputs, _, _, inputs = tables.weights.shape
    groups = tables.inputs // inputs
    sizes = tables.window, inputs, outputs // groups, groups
    if wish.compact == COMPACT_MOST and groups == 1:
        step = patches_code.DEPTH_STEP
        shared = best_kernel(patches_kernels(*sizes, step, halves=tables.halves), wish)
        if shared is None:
            return _TOO_FAR
        values = replace(INT8_UNSHIFTED, halves=tables.halves)
        return replace(shared, product=replace(shared.product, values=values))
    kernel: DspColumns | DspPatches | DspWinograd | None
    winograd = WinogradChoices.read(wish.candidate)
    columns = ColumnsChoices.read(wish.candidate)
    if not wish.is_open and isinstance(winograd, WinogradChoices):
        found = _winograd_kernel(tables, winograd, is_compact=wish.compact > 0)
        if not (isinstance(found, str) and wish.compact):
            return found
    if tables.halves and wish.is_open:
        # Only patches have packed weights.
        return best_kernel(patches_kernels(*sizes, halves=True), wish) or _NO_HALVES
    if wish.is_open or isinstance(winograd, WinogradChoices):
        kernels: list[DspColumns | DspPatches | DspWinograd] = [*columns_kernels(*sizes)]
        kernels += patches_kernels(*sizes)
        exact = [m for m in FACTOR_BITS if _is_exact_winograd(tables, m)]
        every = winograd_kernels(*sizes, is_compact=wish.compact > 0)
        kernels += [one for one in every if one.outputs in exact]
        kernel = best_kernel(kernels, wish)
    elif isinstance(columns, ColumnsChoices):
        kernel = columns_kernel(*sizes, columns)
    elif wish.candidate and wish.candidate.choice("method") == ColumnsChoices.method:
        return columns
    else:
        patches = PatchesChoices.read(wish.candidate)
        if isinstance(patches, str):
            return patches
        return patches_kernel(*sizes, patches, halves=tables.halves)
    if isinstance(kernel, DspColumns):
        return replace(kernel, is_compact=wish.compact > 0)
    return kernel or _TOO_FAR


def _winograd_kernel(
    tables: ConvolutionTables, choices: WinogradChoices, *, is_compact: bool
) -> DspWinograd | str:
    """The kernel with these choices, if compact with weights of int8, or why there is none."""
    outputs, _, _, inputs = tables.weights.shape
    sizes = tables.window, inputs, outputs, tables.inputs // inputs
    int8 = choices.int8 or is_compact
    kinds = int8, choices.outputs
    found = [one for one in winograd_kernels(*sizes) if (one.int8, one.outputs) == kinds]
    if not found:
        most = f"; weights of int8, at most {MOST_EXPANDED} inputs" if int8 else ""
        tiles = "; tiles of 4 x 4 outputs, weights of int8 and fewer products than 2 x 2 take"
        most += tiles if choices.outputs != WinogradChoices.outputs else ""
        return f"Winograd needs a 3x3 window at stride 1, inputs in fours and outputs in twos{most}"
    if not _is_exact_winograd(tables, choices.outputs):
        bits = FACTOR_BITS[choices.outputs]
        limit = 1 << (31 - bits)
        return f"an accumulator can reach {limit}, and Winograd takes {1 << bits} times that"
    rows = choices.rows or 1
    return replace(found[0], rows=min(rows, found[0].tile_rows))


def _is_exact_winograd(tables: ConvolutionTables, outputs: int) -> bool:
    """Whether what tiles of ``outputs`` outputs along an axis make of each sum fits 32 bits."""
    return not isinstance(tables.short_scaling(1 << (31 - FACTOR_BITS[outputs])), str)


def _depthwise_kernel(
    tables: ConvolutionTables, wish: Wish, scaling: Scaling
) -> DspPlanes | DspPixels | DspTwins | str:
    """The best of the kernels that the wish leaves open, or why there is none."""
    twins = TwinsChoices.read(wish.candidate)
    # Twins have no packed tables: then another kernel takes their place.
    is_open = wish.is_open or (isinstance(twins, TwinsChoices) and wish.compact > 0)
    twins = TwinsChoices() if is_open else twins
    planes = PlanesChoices() if is_open else PlanesChoices.read(wish.candidate)
    pixels = PixelsChoices() if is_open else PixelsChoices.read(wish.candidate)
    if isinstance(planes, str) and isinstance(pixels, str) and isinstance(twins, str):
        return planes
    window, outputs = tables.window, tables.weights.shape[0]
    multiplier = outputs // tables.inputs
    kernels: list[DspPlanes | DspPixels | DspTwins] = []
    if isinstance(planes, PlanesChoices):
        found = planes_kernels(window, tables.inputs, multiplier, planes)
        if wish.compact > 0 or tables.halves:
            found = (replace(one, is_compact=True, halves=tables.halves) for one in found)
        kernels += found
    if isinstance(twins, TwinsChoices) and not wish.compact and _are_exact_twins(tables, scaling):
        kernels += twins_kernels(window, outputs, twins, is_cut=tables.limits[1] < 127)
    packs = tables.halves and is_open
    if isinstance(pixels, PixelsChoices) and not packs:
        kernels.append(DspPixels(window, outputs, DspRowProduct(window.kernel), multiplier))
    elif packs and not kernels and shares_driver(tables, outputs, scaling):
        product = DspRowProduct(window.kernel)
        return SharedPixels(window, outputs, product, multiplier, tables.halves)
    return best_kernel(kernels, wish) or "a window that is dilated, or too large for planes"


def _are_exact_twins(tables: ConvolutionTables, scaling: Scaling) -> bool:
    """Whether one rounding of both rows gives the reference's outputs."""
    if tables.halves or len(tables.weights) != tables.inputs:
        return False
    quantized = tables.zero_point, tables.limits
    return twins_scaling(scaling, tables.weights, *quantized) is not None


def exact_candidates(listed: ListCandidates) -> ListCandidates:
    """Those of ``listed`` that the layer allows: twins need outputs of one rounding."""

    def candidates(layer: Layer) -> tuple[Candidate, ...]:
        found = tuple(listed(layer))
        if all(one.choice("method") != TwinsChoices.method for one in found):
            return found
        tables = convolution_tables(layer, turns_dilated=True)
        scaling = tables.short_scaling()
        if not isinstance(scaling, str) and _are_exact_twins(tables, scaling):
            return found
        return tuple(one for one in found if one.choice("method") != TwinsChoices.method)

    return candidates


def convolution_choices(kernel: object) -> Iterator[Choices]:
    """The choices of this kernel, then all others of the layer."""
    if isinstance(kernel, DspColumns | DspPatches | DspWinograd):
        yield kernel.choices
        sizes = kernel.window, kernel.input_channels, kernel.output_channels, kernel.groups
        yield from choices_of_small(columns_kernels(*sizes))
        patches = list(patches_kernels(*sizes))
        for step in patches_code.steps_for(patches[0].depth) if patches else ():
            for found in patches:
                if 2 * found.pixels * found.depth <= MOST_CANDIDATE_BYTES:
                    yield PatchesChoices(found.pixels, step)
        yield from choices_of_small(winograd_kernels(*sizes), MOST_WINOGRAD_BYTES)
    elif isinstance(kernel, DspPlanes | DspPixels | DspTwins):
        yield kernel.choices
        channels = kernel.channels, 1
        if isinstance(kernel, DspPlanes):
            channels = kernel.channels, kernel.multiplier
        elif isinstance(kernel, DspPixels):
            channels = kernel.inputs, kernel.repeats
        if channels[1] == 1:
            yield from choices_of_small(twins_kernels(kernel.window, channels[0], TwinsChoices()))
        yield from choices_of_small(planes_kernels(kernel.window, *channels, PlanesChoices()))
        yield PixelsChoices()
