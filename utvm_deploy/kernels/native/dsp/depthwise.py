"""How a DEPTHWISE_CONV_2D is done: over planes, or by pixels.

A candidate chooses. Without one, estimates of all kernels do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Wish
from utvm_deploy.kernels.native.dsp.depthwise_pixels import (
    DspPixels,
    PixelsChoices,
    pixels_call,
    pixels_kernel,
)
from utvm_deploy.kernels.native.dsp.depthwise_planes import (
    DspPlanes,
    PlanesChoices,
    planes_call,
    planes_kernels,
)
from utvm_deploy.kernels.native.dsp.estimate import MOST_CANDIDATE_BYTES, best_kernel, scratch_bytes
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables


def depthwise_call(call: KernelCall, tables: ConvolutionTables, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one; ``tables`` have one input for each output."""
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    kernel = _wished(tables, wish)
    if isinstance(kernel, DspPlanes):
        return planes_call(call, kernel, tables, scaling)
    if isinstance(kernel, DspPixels):
        return pixels_call(call, kernel, tables, scaling)
    return kernel


def _wished(tables: ConvolutionTables, wish: Wish) -> DspPlanes | DspPixels | str:
    """The best of the kernels that the wish leaves open, or why there is none."""
    planes = PlanesChoices() if wish.is_open else PlanesChoices.read(wish.candidate)
    pixels = PixelsChoices() if wish.is_open else PixelsChoices.read(wish.candidate)
    if isinstance(planes, str) and isinstance(pixels, str):
        return planes
    sizes = tables.window, tables.inputs, tables.weights.shape[0] // tables.inputs
    kernels: list[DspPlanes | DspPixels] = []
    if isinstance(planes, PlanesChoices):
        found = planes_kernels(*sizes, planes)
        kernels += (replace(kernel, is_compact=wish.compact > 0) for kernel in found)
    if isinstance(pixels, PixelsChoices):
        kernels.append(pixels_kernel(*sizes))
    best = best_kernel(kernels, wish)
    return best or "a window that is dilated, or too large for planes"


def depthwise_choices(kernel: object) -> Iterator[Choices]:
    """What a candidate can choose instead of this kernel, whose own choices come first."""
    if isinstance(kernel, DspPlanes):
        inputs, multiplier = kernel.channels, kernel.multiplier
    elif isinstance(kernel, DspPixels):
        inputs, multiplier = kernel.inputs, kernel.repeats
    else:
        return
    yield kernel.choices
    for one in planes_kernels(kernel.window, inputs, multiplier, PlanesChoices()):
        if scratch_bytes(one) <= MOST_CANDIDATE_BYTES:
            yield one.choices
    yield PixelsChoices()
