"""DEPTHWISE_CONV_2D: a tile of pixels by a block of channels, any window.

A weight of each channel of the block is loaded once for all pixels of a tile.

Layouts:
    weights  int8  [tap][channel]
    scaling  int32 [bias, multiplier, right shift][channel]
    limits   int32 [zero point, low, high]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.row_depthwise import ChannelRows, RowDepthwise, row_depthwise_call
from utvm_deploy.kernels.native.rvv.blocks import FRAME, Block, Routine, tiles

_PARAMETERS = """
const int8_t *rows, const int8_t *weights, const int32_t *scaling, const int32_t *limits,
int8_t *output, int32_t row_pitch, int32_t column_pitch, int32_t step, int32_t count,
int32_t channels
"""
#: Taps of a window that are unrolled at most.
_MOST_TAPS = 9
_POINTERS = ("s10", "s11", "t0", "t1", "t5", "a3")


@dataclass(frozen=True)
class VectorRowProduct(ChannelRows):
    """The micro-kernel for a window of ``rows`` x ``columns``."""

    rows: int
    columns: int
    lmul: int

    @property
    def label(self) -> str:
        return f"rvv_m{self.lmul}"

    @property
    def function(self) -> str:
        return f"utvm_rvv_depthwise_m{self.lmul}_{self.rows}x{self.columns}"

    @property
    def why(self) -> str:
        pixels = Block(self.lmul).sizes[0]
        return f"Zve32x assembly, {pixels} pixels x {self.lmul} registers of channels"

    def texts(self, core: str) -> tuple[str, ...]:
        return (_text(self),)


def vector_depthwise_call(
    call: KernelCall, tables: ConvolutionTables, weights: Array, scaling: Array, lmul: int
) -> KernelCall:
    """The call instead of the portable one; with weights and scaling of ``scaled_rows``."""
    channels, rows, columns, _ = weights.shape
    product = VectorRowProduct(rows, columns, lmul)
    return row_depthwise_call(
        call,
        RowDepthwise(tables.window, channels, product, channels // tables.inputs),
        tables.border,
        weights=np.ascontiguousarray(weights.reshape(channels, -1).T).reshape(-1),
        scaling=scaling.reshape(-1),
        limits=np.array([tables.zero_point, *tables.limits], dtype=np.int32),
    )


@lru_cache(maxsize=32)
def _text(product: VectorRowProduct) -> str:
    """The C of the function: blocks of channels, then tiles of pixels.

    Registers: s0 has the pixels, s1 the channels, s5 the bytes of a row of scaling. Those that are
    left are in s6 and s8: channels, pixels. A tile begins at t2, and its outputs at s7.
    """
    portable = replaced(
        family_text("rvv", "utvm_rvv_depthwise"),
        ("ROWS", str(product.rows), 1),
        ("COLUMNS", str(product.columns), 1),
    )
    block = Block(product.lmul)
    lines = [f"lw s0, {FRAME}(sp)", f"lw s1, {FRAME + 4}(sp)"]
    lines += ["lw s2, 0(a3)", "lw s3, 4(a3)", "lw s4, 8(a3)", "slli s5, s1, 2", "mv s6, s1"]
    lines += ["90:", f"vsetvli zero, s6, {block.bits16}", "mv t2, a0", "mv s7, a4", "mv s8, s0"]
    bodies = [_tile(product, size, n) for n, size in enumerate(block.sizes, 1)]
    lines += tiles(block.sizes, "s8", 1, bodies)
    lines += ["csrr t3, vl", "add a0, a0, t3", "add a1, a1, t3", "add a4, a4, t3"]
    lines += ["sub s6, s6, t3", "slli t3, t3, 2", "add a2, a2, t3", "bnez s6, 90b"]
    return Routine(_PARAMETERS, lines).c_function(product.function, portable)


def _tile(product: VectorRowProduct, size: int, label: int) -> Iterator[str]:
    """A block of channels of ``size`` pixels. t4: weights, s9: row, t6: rows that are left."""
    block, pointers = Block(product.lmul), _POINTERS[:size]
    sums = block.sums(size)
    is_loop = product.rows * product.columns > _MOST_TAPS
    yield f"vsetvli zero, zero, {block.bits16}"
    yield from block.begin(sums, "a2")
    yield from ("mv t4, a1", "mv s9, t2")
    row = ["mv s10, s9"]
    row += [f"add {p}, {q}, a7" for q, p in pairwise(pointers)]
    for k in range(product.columns):
        row += [*block.load_wide(0, "t4"), "add t4, t4, s1"]
        for number, (p, one) in enumerate(zip(pointers, sums, strict=True)):
            place = 1 + number % (4 // product.lmul - 1)
            row += block.load_wide(place, p)
            row += [f"add {p}, {p}, a6"] if k < product.columns - 1 else []
            row += [f"vwmacc.vv {one}, {block.wide(place)}, {block.wide(0)}"]
    row += ["add s9, s9, a5"]
    if is_loop:
        yield from (f"li t6, {product.rows}", f"{label}2:", *row)
        yield from ("addi t6, t6, -1", f"bnez t6, {label}2b")
    else:
        yield from row * product.rows
    yield from block.requantize(sums, "a2", "s5", "s2", "t3")
    yield from block.store(sums, ("s3", "s4"), "s7", "s1", "t3")
    yield from size * ("add t2, t2, a7", "add s7, s7, s1")
