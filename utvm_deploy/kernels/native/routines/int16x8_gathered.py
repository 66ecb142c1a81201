"""Convolutions of int16 by int8 weights as a matrix product, by a micro-kernel of the family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import bytes_texts, replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operation import Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.contract.strategy import Build, Layer, Wish
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.gathered_gemm import Product, gathered, windows_texts
from utvm_deploy.kernels.native.layer_tables import constants, limits_of
from utvm_deploy.kernels.native.routines.int16x8 import Int16x8ProductConv, is_short
from utvm_deploy.kernels.native.routines.int16x8_depthwise import Int16x8Depthwise
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.integers.convolution import Int16x8Conv2D


@dataclass(frozen=True, eq=False)
class WideProduct:
    """A C function that takes pixels of int16, and otherwise what that of a ``Product`` takes."""

    family: str
    function: str
    texts: tuple[str, ...]
    weights: Array
    scaling: Array
    label: str  # of the kernel's name
    why: str
    tile: Product  # whose blocks are gathered


@dataclass(frozen=True, eq=False)
class ShortConvolution:
    """A layer whose sums, and their scaling, fit 32 bits; its rows are [bias, multiplier, shift].

    As ``is_short`` says: the high word of a sum times the multiplier, shifted right.
    """

    window: Window
    weights: Array
    rows: Array


def short_convolution(layer: Layer) -> ShortConvolution | str:
    """A convolution over all channels, simplified, or why its sums need more."""
    kernel, weights = layer.portable.kernel, layer.constant(1)
    if isinstance(kernel, Int16x8Conv2D) and _has_one_channel(kernel):
        weights = weights.transpose(3, 1, 2, 0)
    elif not isinstance(kernel, Int16x8ProductConv):
        return "it sums up in 32 bits, which may wrap, or has groups"
    window, weights = simplified(kernel.window, weights)
    tables = constants(layer.portable)
    bias, multiplier, shift = (tables[name] for name in ("bias", "multiplier", "shift"))
    if not is_short(weights, bias, shift):
        return "its sums, or their scaling, need more than 32 bits"
    rows = np.array([bias, multiplier.astype(np.int32) << 16, -1 - shift], dtype=np.int32)
    return ShortConvolution(window, weights, rows)


def _has_one_channel(kernel: Int16x8Conv2D) -> bool:
    """Whether it is a depthwise convolution of one channel, which is one over all channels."""
    return kernel.is_depthwise and kernel.channels == 1 and kernel.sum_type == "int64"


def wide_depthwise_call(
    family: type[Int16x8Depthwise], convolve: Build, layer: Layer, wish: Wish
) -> KernelCall | str:
    """DEPTHWISE_CONV_2D: the call instead of the portable one, or why there is none."""
    kernel = layer.portable.kernel
    if isinstance(kernel, Int16x8Conv2D) and _has_one_channel(kernel):
        return convolve(layer, wish)
    if not isinstance(kernel, Int16x8Depthwise):
        return "it has several outputs of a channel, or its sums need more than 32 bits"
    return kernel.by(family, layer.portable)


def wide_conv_call(
    layer: Layer, window: Window, weights: Array, product: WideProduct
) -> KernelCall:
    """The call instead of the portable one; window and weights are those of ``simplified``."""
    outputs, rows, columns, channels = weights.shape
    depth = rows * columns * channels
    # Windows are gathered as if their bytes were channels.
    gathering = gathered(window, (2 * channels, outputs), product.tile, None)
    images, pixels = window.batch, window.output_height * window.output_width
    if not gathering.is_gathered:  # one image of all pixels
        images, pixels = 1, images * pixels
    step = gathering.pixels if gathering.is_gathered else pixels
    routine = f"utvm_{product.family}_wide_conv_by_{product.function}"
    scaling = f"{product.scaling.dtype}"
    names = ("ROUTINE", routine, 1), ("PRODUCT", product.function, 1), ("SCALING", scaling, 1)
    given: Parameters = {
        "geometry": gathering.geometry,
        "weights": product.weights,
        "scaling": product.scaling,
        "limits": np.array([0, *limits_of(layer.portable)], dtype=np.int32),
    }
    kernel = CRoutine(
        routine,
        parameters_of(layer, given),
        (images, pixels, step, outputs, depth, int(gathering.is_gathered)),
        (Operand("windows", (max(gathering.pixels * depth, 1),), "int16"),),
        name=f"conv2d_{window.label}_{channels}x{outputs}_16x8_{product.label}",
        why=product.why,
        c_texts=(
            *bytes_texts(layer.core),
            *windows_texts(),
            *product.texts,
            replaced(shared_text("utvm_wide_conv_by"), *names),
        ),
    )
    return layer.call(kernel, given, macs=layer.portable.macs)
