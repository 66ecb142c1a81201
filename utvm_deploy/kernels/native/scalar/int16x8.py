"""CONV_2D and DEPTHWISE_CONV_2D of int16 by int8 weights whose sums fit 32 bits.

CONV_2D takes the tile of int8. A depthwise layer computes four channels of a pixel at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.routines.int16x8_depthwise import Int16x8Depthwise
from utvm_deploy.kernels.native.routines.int16x8_gathered import (
    WideProduct,
    short_convolution,
    wide_conv_call,
)
from utvm_deploy.kernels.native.scalar.gemm import REACH, UNITS, ScalarProduct
from utvm_deploy.kernels.native.scalar.rounding import ONCE
from utvm_deploy.records.candidate import COMPACT_MOST

_TILE = 3


def int16x8_conv_call(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D over all channels: the call instead of the portable one."""
    found = short_convolution(layer)
    if isinstance(found, str):
        return found
    bias, multiplier, shift = found.rows
    flat = found.weights.reshape(len(found.weights), -1)
    depth = flat.shape[1]
    unit = next(unit for unit in UNITS if depth % unit == 0)
    product = ScalarProduct(_TILE, unit, ONCE, dtype="int16")
    # The code reaches all pixels of a tile from one pointer, if they are near.
    if 2 * ((_TILE - 1) * depth + unit) <= REACH:
        product = replace(product, pitch=depth)
    if wish.compact >= COMPACT_MOST:  # little code, which layers share
        product = ScalarProduct(1, 1, ONCE, dtype="int16")
    packed = product.pack(flat, np.array([bias, multiplier, 1 << (shift - 1), shift], np.int32))
    texts = product.texts(layer.core)
    tile = ScalarProduct(_TILE, 1)
    made = WideProduct("scalar", product.function, texts, *packed, product.label, product.why, tile)
    call = wide_conv_call(layer, found.window, found.weights, made)
    return replace(call, heeds_compact=COMPACT_MOST)


@dataclass(frozen=True)
class ScalarInt16x8Depthwise(Int16x8Depthwise):
    """One output of a channel, whose sum fits 32 bits."""

    family: ClassVar[str] = "_scalar"
    pixel: ClassVar[str] = "utvm_scalar_wide_depthwise"
    why: ClassVar[str] = "C, four channels of a pixel in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        return ONCE.text, *super().texts(core)

    def pixel_text(self, core: str) -> str:
        return family_text("scalar", self.pixel)
