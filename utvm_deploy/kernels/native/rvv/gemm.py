"""The matrix product of convolutions and dense layers: a tile of pixels by a block of channels.

A step of the depth loads a weight of each channel of the block, and a byte of each pixel.

In *chunks*, products of bytes are summed up in 16 bits as long as the sums fit, for any pixels. So
half as many bits are added for a product, and weights need no conversion. Two pixels fit the
registers. The weights decide how long a chunk is; all channels have the same ones.

Layouts:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [depth][channel]; of chunks with their turns as bytes, then 0, before it; of
                   int4 [depth / 2][channel], the even step of the depth in the lower half
    scaling  int32 [bias, multiplier, right shift][channel]
    limits   int32 [zero point, low, high]

Dense layers are rounded once in 64 bits. Then an offset has two words:
    scaling  int32 [bias (, multiplier, low and high word of the offset, shift - 32)][channel]
    limits   int32 [low, high (, multiplier, low and high word of the offset, shift - 32)]

Pixels of int16 are rounded once, too, from the high word (``routines/int16x8.py``). Their tables
are the first ones, with multipliers of 31 bits and the shift of that word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.rvv.blocks import FRAME, ROUNDED, Block, Routine, tiles
from utvm_deploy.kernels.native.scalar.pairs import chunk_starts

#: How sums become outputs.
TWICE, WIDE, WIDE_EACH, INT16 = "", "_wide", "_wide_each", "_int16"
#: Rows of the scaling table, and words of the limits.
_TABLES = {TWICE: (3, 3), WIDE: (1, 6), WIDE_EACH: (5, 2), INT16: (3, 3)}
#: Steps of the depth in a turn of the inner loop.
UNITS = (4, 2, 1)
_POINTERS = ("s8", "s9", "s10", "s11", "s5", "s6")
_BYTES = ("t5", "t6", "s7")
#: Where the sums of a chunk are.
_CHUNK_SUMS = ("v24", "v28")


@dataclass(frozen=True)
class VectorProduct:
    """The micro-kernel: registers of a block's weights, steps of a turn, how it rounds."""

    lmul: int
    unit: int
    rounding: str = TWICE
    is_chunked: bool = False  # with blocks of two registers
    halves: bool = False  # the weights are int4

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels of the tiles."""
        if self.is_chunked and self.rounding == TWICE:
            return (2, 1)
        return Block(self.lmul).sizes if self.rounding in (TWICE, INT16) else (1,)

    @property
    def pixels(self) -> int:
        return self.sizes[0]

    @property
    def element_bytes(self) -> int:
        """Of pixels and outputs."""
        return 2 if self.rounding == INT16 else 1

    @property
    def depth_step(self) -> int:
        return self.unit

    @property
    def label(self) -> str:
        chunks = "_int4" if self.halves else "_chunks" if self.is_chunked else ""
        return f"rvv{chunks}{self.rounding}_m{self.lmul}_{self.unit}"

    @property
    def function(self) -> str:
        return f"utvm_gemm_{self.label}"

    @property
    def why(self) -> str:
        chunks = ", sums of 16 bits" if self.is_chunked else ""
        return f"Zve32x assembly, {self.pixels} pixels x {self.lmul} registers of channels{chunks}"

    def texts(self, core: str) -> tuple[str, ...]:
        if self.rounding in (WIDE, WIDE_EACH):
            return shared_text("utvm_scale_wide"), _text(self)
        return (ROUNDED, _text(self)) if self.rounding == INT16 else (_text(self),)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        rows, limits = _TABLES[self.rounding]
        weights = self._length_bytes(depth) + depth * channels // (2 if self.halves else 1)
        return (
            Operand("weights", (weights,), "int8"),
            Operand("scaling", (rows * channels,), "int32"),
            Operand("limits", (limits,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        lengths = np.zeros(self._length_bytes(weights.shape[1]), dtype=np.uint8)
        if self.is_chunked:
            starts = chunk_starts(weights, self.unit, len(weights))
            assert starts is not None
            found = np.diff(np.append(np.flatnonzero(starts[0]), starts.shape[1]))
            lengths[: found.size] = found
        table = np.concatenate([lengths.view(np.int8), weights.T.reshape(-1)])
        return table, rows.astype(np.int32).reshape(-1)

    def halved(self, table: Array, channels: int) -> tuple[VectorProduct, Array] | str:
        """The product with weights of int4, and their table, from that of int8; or why not."""
        if self.is_chunked or self.unit % 2:
            return "chunks and an odd depth have no pairs of steps"
        even, odd = table.reshape(-1, 2, channels).swapaxes(0, 1)
        return replace(self, halves=True), (even & 15 | odd << 4).astype(np.int8).reshape(-1)

    def _length_bytes(self, depth: int) -> int:
        return depth // self.unit + 1 if self.is_chunked else 0


@lru_cache(maxsize=32)
def _text(product: VectorProduct) -> str:
    """The C of the function."""
    rows = [f"scaling[{n} * channels + c]" for n in range(1, _TABLES[product.rounding][0])]
    wide = "const int32_t low = limits[0], high = limits[1];"
    total, parameters = "(int32_t)sum", PRODUCT_PARAMETERS
    first, scaled = {
        INT16: (
            "const int32_t low = limits[1], high = limits[2];",
            f"utvm_rvv_rounded({', '.join([total, *rows])})",
        ),
        TWICE: (
            "const int32_t zero_point = limits[0], low = limits[1], high = limits[2];",
            f"utvm_add(utvm_requantize({total}, {', -'.join(rows)}), zero_point)",
        ),
        WIDE: (wide, f"utvm_scale_wide({total}, limits[2], limits[3], limits[4], limits[5])"),
        WIDE_EACH: (wide, f"utvm_scale_wide({', '.join([total, *rows])})"),
    }[product.rounding]
    text = family_text("rvv", "utvm_rvv_gemm")
    portable = replaced(text, ("FIRST", first, 1), ("SCALED", scaled, 1))
    if product.halves:
        half = "(int8_t)(weights[k / 2 * channels + c] * (k % 2 ? 1 : 16)) >> 4"
        portable = replaced(portable, ("weights[k * channels + c]", f"({half})", 1))
    lines = [f"lw s0, {FRAME}(sp)", "slli s1, a6, 2"]
    lines += [f"lw s{2 + n}, {4 * n}(a3)" for n in range(_TABLES[product.rounding][1])]
    if product.rounding == INT16:
        lines += ["slli a7, a7, 1", "slli s0, s0, 1", "slli s11, a6, 1"]
        portable = replaced(portable, ("(int8_t)utvm_clamp", "(int16_t)utvm_clamp", 1))
        for name in ("*pixels", "*output"):
            parameters = replaced(parameters, (f"int8_t {name}", f"int16_t {name}", 1))
    start = "a1"
    if product.is_chunked:
        start, shift = "s10", product.unit.bit_length() - 1
        lines += [f"srli s10, a7, {shift}", "addi s10, s10, 1", "add s10, s10, a1"]
        portable = f"    weights += depth / {product.unit} + 1;\n{portable}"
    bodies = [_tile(product, size, n, start) for n, size in enumerate(product.sizes, 1)]
    lines += tiles(product.sizes, "a5", 1, bodies)
    return Routine(parameters, lines).c_function(product.function, portable)


def _tile(product: VectorProduct, size: int, label: int, start: str) -> Iterator[str]:
    """All channels of ``size`` pixels.

    t0, t1 and t2 are where the weights, the scaling and the output of a block begin, t3 the
    channels that are left. a3 is where the first pixel ends.
    """
    block, pointers = Block(product.lmul), _POINTERS[:size]
    sums, step = block.sums(size), product.element_bytes
    row = "a6" if step == 1 else "s11"
    yield from (f"mv t0, {start}", "mv t1, a2", "mv t2, a4", "mv t3, a6", f"{label}1:")
    yield f"vsetvli zero, t3, {block.bits16}"
    yield from block.begin(sums, "t1")
    yield from ("mv t4, t0", "mv s8, a0", "add a3, a0, a7")
    yield from (f"add {p}, {q}, s0" for q, p in pairwise(pointers))
    if product.is_chunked:
        yield from _chunks(product, block, sums, label)
    else:
        yield from _steps(product, block, sums, label)
    yield from _finish(product, block, sums)
    yield from ("csrr t5, vl", "add t0, t0, t5", "sub t3, t3, t5")
    yield from step * ("add t2, t2, t5",)
    yield from ("slli t5, t5, 2", "add t1, t1, t5", f"bnez t3, {label}1b")
    yield from size * ("add a0, a0, s0", f"add a4, a4, {row}")


def _steps(product: VectorProduct, block: Block, sums: list[str], label: int) -> Iterator[str]:
    """The products of all steps, to sums of 32 bits."""
    size, step, pointers = len(sums), product.element_bytes, _POINTERS[: len(sums)]
    load = "lb" if step == 1 else "lh"
    yield f"{label}2:"
    for k in range(product.unit):
        if product.halves and k % 2:
            yield f"vsra.vi {block.wide(1)}, {block.wide(1)}, 4"
        else:
            yield from (*block.load_wide(int(product.halves) or k % 2, "t4"), "add t4, t4, a6")
        if product.halves and not k % 2:
            yield from (f"vsll.vi {block.wide(0)}, {block.wide(1)}, 12",)
            yield from (f"vsra.vi {block.wide(0)}, {block.wide(0)}, 12",)
        for first in range(0, size, len(_BYTES)):
            some = list(zip(_BYTES, pointers[first:], sums[first:], strict=False))
            yield from (f"{load} {x}, {step * k}({p})" for x, p, _ in some)
            yield from (f"vwmacc.vx {s}, {x}, {block.wide(k % 2)}" for x, _, s in some)
    yield from (f"addi {p}, {p}, {step * product.unit}" for p in pointers)
    yield f"bne s8, a3, {label}2b"


def _chunks(product: VectorProduct, block: Block, sums: list[str], label: int) -> Iterator[str]:
    """The same by way of sums of 16 bits. s11: the lengths of chunks; a3: turns that are left."""
    pairs = list(zip(_BYTES, _POINTERS, _CHUNK_SUMS[: len(sums)], strict=False))

    def turn(first: str) -> Iterator[str]:
        for k in range(product.unit):
            weights = f"v{block.lmul * (k % 4)}"
            yield from (f"vle8.v {weights}, (t4)", "add t4, t4, a6")
            yield from (f"lb {x}, {k}({p})" for x, p, _ in pairs)
            operation = "vwmacc.vx {0}, {1}, {2}" if k else first
            yield from (operation.format(total, x, weights) for x, _, total in pairs)
        yield from (f"addi {p}, {p}, {product.unit}" for _, p, _ in pairs)
        yield "addi a3, a3, -1"

    yield from ("mv s11, a1", "lbu a3, 0(s11)", f"{label}2:")
    yield from (f"vsetvli zero, zero, {block.bits8}", "addi s11, s11, 1")
    yield from (*turn("vwmul.vx {0}, {2}, {1}"), f"beqz a3, {label}4f", f"{label}3:")
    yield from (*turn("vwmacc.vx {0}, {1}, {2}"), f"bnez a3, {label}3b", f"{label}4:")
    yield from ("lbu a3, 0(s11)", f"vsetvli zero, zero, {block.bits16}")
    yield from (
        f"vwadd.wv {one}, {one}, {part}" for one, (_, _, part) in zip(sums, pairs, strict=True)
    )
    yield f"bnez a3, {label}2b"


def _finish(product: VectorProduct, block: Block, sums: list[str]) -> Iterator[str]:
    """Outputs of the sums of a block."""
    if product.rounding == TWICE:
        yield from block.requantize(sums, "t1", "s1", "s2", "t5")
        yield from block.store(sums, ("s3", "s4"), "t2", "a6", "t5")
        return
    if product.rounding == INT16:
        yield from block.requantize_once(sums, "t1", "s1", "t5")
        yield from block.store_wide(sums, ("s3", "s4"), "t2", "s11", "t5")
        return
    (low,), high = sums, "v16"
    yield f"vsetvli zero, zero, {block.bits32}"
    yield "mv t5, t1"
    form, row = ("vv", "v24") if product.rounding == WIDE_EACH else ("vx", "")
    steps = (
        ("s4", f"vmulh.{form} {high}, {low}, {{0}}", f"vmul.{form} {low}, {low}, {{0}}"),
        ("s5", f"vmadc.{form} v0, {low}, {{0}}"),
        ("s6", f"vadc.{form}m {high}, {high}, {{0}}, v0"),
        ("s7", f"vsra.{form} {high}, {high}, {{0}}"),
    )
    for scalar, *operations in steps:
        if row:
            yield from ("add t5, t5, s1", f"vle32.v {row}, (t5)")
        yield from (one.format(row or scalar) for one in operations)
    yield from block.narrowed([high])
    yield from block.store([high], ("s2", "s3"), "t2", "a6", "t5")
