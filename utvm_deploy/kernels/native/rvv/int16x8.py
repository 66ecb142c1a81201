"""CONV_2D and DEPTHWISE_CONV_2D of int16 by int8 weights whose sums fit 32 bits, in vectors.

A depthwise layer computes one pixel of sixteen channels at a time. The layouts are

    weights  int8  [group][tap][lane]
    scaling  int32 [group][bias, multiplier, right shift][lane]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.routines.int16x8_depthwise import PARAMETERS, Int16x8Depthwise
from utvm_deploy.kernels.native.routines.int16x8_gathered import (
    WideProduct,
    short_convolution,
    wide_conv_call,
)
from utvm_deploy.kernels.native.rvv.blocks import ROUNDED, Block, Routine
from utvm_deploy.kernels.native.rvv.gemm import INT16, UNITS, VectorProduct

_FAMILY = "rvv"
_NAME = "utvm_rvv_wide_depthwise"
#: Channels of a group: those of the shortest vectors.
_LANES = 16
_BLOCK = Block(1)


def int16x8_conv_call(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D over all channels: the call instead of the portable one."""
    found = short_convolution(layer)
    if isinstance(found, str):
        return found
    flat = found.weights.reshape(len(found.weights), -1)
    unit = next(unit for unit in UNITS if flat.shape[1] % unit == 0)
    product = VectorProduct(2, unit, INT16)
    packed = product.pack(flat, found.rows)
    texts, tile = product.texts(layer.core), VectorProduct(2, 1)
    made = WideProduct(_FAMILY, product.function, texts, *packed, product.label, product.why, tile)
    return wide_conv_call(layer, found.window, found.weights, made)


@dataclass(frozen=True)
class VectorInt16x8Depthwise(Int16x8Depthwise):
    """One output of a channel, whose sum fits 32 bits."""

    family: ClassVar[str] = f"_{_FAMILY}"
    lanes: ClassVar[int] = _LANES
    pixel: ClassVar[str] = _NAME
    why: ClassVar[str] = f"Zve32x assembly, {_LANES} channels of a pixel"

    def texts(self, core: str) -> tuple[str, ...]:
        return ROUNDED, *super().texts(core)

    def pixel_text(self, core: str) -> str:
        return _pixel_text()

    @staticmethod
    def pack_scaling(bias: Array, multiplier: Array, right: Array) -> Array:
        rows = np.array([bias, multiplier, right], dtype=np.int32)
        return by_groups(rows, _LANES).reshape(-1)


@lru_cache(maxsize=1)
def _pixel_text() -> str:
    """s0 to s8 have the words of the walk, as ``c/utvm_wide_depthwise.h`` gives them."""
    lines = [f"lw s{n}, {4 * n}(a4)" for n in range(9)]
    lines += ["1:", "mv t0, s6", f"li t1, {_LANES}", "ble t0, t1, 2f", "mv t0, t1", "2:"]
    lines += [f"vsetvli zero, t0, {_BLOCK.bits16}", "vle32.v v8, (a2)"]
    lines += ["mv t0, a0", "mv t1, a1", "mv t2, s0", "blez s0, 5f", "blez s1, 5f"]
    lines += ["3:", "mv t3, s1", "4:", "vle16.v v2, (t0)", *_BLOCK.load_wide(0, "t1")]
    lines += ["add t0, t0, s3", f"addi t1, t1, {_LANES}", "addi t3, t3, -1"]
    lines += ["vwmacc.vv v8, v2, v0", "bnez t3, 4b", "add t0, t0, s2", "add t1, t1, s4"]
    lines += ["addi t2, t2, -1", "bnez t2, 3b", "5:", f"li t2, {4 * _LANES}"]
    lines += _BLOCK.requantize_once(["v8"], "a2", "t2", "t1")
    lines += _BLOCK.store_wide(["v8"], ("s7", "s8"), "a3", "zero", "t1")
    lines += [f"addi a0, a0, {2 * _LANES}", "add a1, a1, s5", f"addi a2, a2, {12 * _LANES}"]
    lines += [f"addi a3, a3, {2 * _LANES}", f"addi s6, s6, -{_LANES}", "bgtz s6, 1b"]
    return Routine(PARAMETERS, lines).c_function(_NAME, family_text("rvv", _NAME))
