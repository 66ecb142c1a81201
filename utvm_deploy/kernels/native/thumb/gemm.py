"""The matrix product of convolutions and fully connected layers: tiles of P pixels by C channels.

Every product needs a byte of each side in a register of its own, so a tile of P x C costs P + C
loads for P x C products. 2 x 4 fills the registers: eight accumulators, three pointers, three
bytes. What is left of the pixels is done one by one.

Layouts, for channel o = C group + slot:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [group][depth][slot]
    scaling  int32 [group][bias, multiplier, offset, shift][slot]
    limits   int32 [low, high]

Fully connected layers are rounded once, in 64 bits:
    scaling  int32 [group][bias (, multiplier, low and high word of the offset, shift - 32)][slot]
    limits   int32 [low, high, multiplier, low and high word of the offset, shift - 32]
with the one scale of the layer in the limits, or one for each channel in the scaling table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from utvm_deploy.cores.timing_m3 import CORTEX_M3
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.instructions import Instruction, load, multiply_add
from utvm_deploy.kernels.isa.list_scheduler import cycles as cycles_of
from utvm_deploy.kernels.isa.routine import Routine, naked_function
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.thumb.code import (
    CONDITION,
    clamped,
    limits_stored,
    scaled,
    scaled_wide,
)

#: How sums become outputs: two roundings in 32 bits, or one in 64 with one scale, or many.
SHORT, WIDE, WIDE_EACH = "", "_wide", "_wide_each"

# Slots on the stack: where the next tile begins and goes, and how many pixels are left; weights of
# this group; the first pixel, and where this group's first output goes; what was given; limits, and
# whether they are narrower than int8; the depth, whole steps of it, and where they end; tables.
(_X, _OUTPUT, _LEFT, _PANEL, _FIRST, _COLUMN, _COUNT, _CHANNELS_LEFT, _CHANNELS, _PITCH,
 _LOW, _HIGH, _CLAMPS, _DEPTH, _STEPS, _END, _SCALING, _LIMITS) = range(0, 72, 4)  # fmt: skip
_FRAME_BYTES = 72
_SAVED_BYTES = 36


@dataclass(frozen=True)
class ThumbTile:
    """A register tile, and how many products deep its loop is written out."""

    pixels: int
    channels: int
    step: int = 4
    rounding: str = SHORT

    @property
    def rows(self) -> int:
        """Rows of the scaling table."""
        return {SHORT: 4, WIDE: 1, WIDE_EACH: 5}[self.rounding]

    @property
    def label(self) -> str:
        """As in ``tile=2x4``."""
        return f"{self.pixels}x{self.channels}"

    @property
    def function(self) -> str:
        """The C function's name."""
        return f"utvm_thumb_gemm{self.rounding}_{self.label}_{self.step}"


#: Those that fit the registers and are ever the best of them.
TILES = tuple(
    ThumbTile(pixels, channels, step)
    for pixels, channels in ((2, 4), (2, 3), (3, 2), (1, 4), (2, 2))
    for step in (8, 4)
)
#: Of a turn of the inner loop: its end's load, the step of a pointer, comparison, taken branch.
_TURN_CYCLES = 2 + 1 + 1 + 3
#: About what a tile takes beside its products: pointers, then each output's requantization.
_TILE_CYCLES = 60
_OUTPUT_CYCLES = 14


def best_tile(tiles: Sequence[ThumbTile], count: int, channels: int, depth: int) -> ThumbTile:
    """The fastest for so many pixels, by the cycles of its loops."""
    return min(tiles, key=lambda tile: cycles(tile, count, channels, depth))


def cycles(tile: ThumbTile, count: int, channels: int, depth: int) -> int:
    """About what the product of so many pixels and channels takes on a Cortex-M3."""
    whole, rest = divmod(count, tile.pixels)
    groups = -(-channels // tile.channels)
    return groups * (
        whole * _tile_cycles(tile, tile.pixels, depth) + rest * _tile_cycles(tile, 1, depth)
    )


def _tile_cycles(tile: ThumbTile, pixels: int, depth: int) -> int:
    steps, rest = divmod(depth, tile.step)
    outputs, products = pixels * tile.channels, depth * _product_cycles(tile, pixels)
    return _TILE_CYCLES + _OUTPUT_CYCLES * outputs + products + (steps + rest) * _TURN_CYCLES


@lru_cache(maxsize=32)
def _product_cycles(tile: ThumbTile, pixels: int) -> int:
    """For each k: nothing waits on this core, so the order does not matter, nor how many follow."""
    return cycles_of(loop_code(tile, pixels, 1), CORTEX_M3)


def pack_weights(weights: Array, tile: ThumbTile) -> Array:
    """[channels, depth] -> the layout above."""
    channels, depth = weights.shape
    groups = -(-channels // tile.channels)
    filled = np.zeros((groups * tile.channels, depth), dtype=np.int8)
    filled[:channels] = weights
    split = filled.reshape(groups, tile.channels, depth).transpose(0, 2, 1)
    return np.ascontiguousarray(split).reshape(-1)


def pack_scaling(rows: Sequence[Array], tile: ThumbTile) -> Array:
    """Rows with an entry for each channel -> the layout above."""
    channels = rows[0].size
    groups = -(-channels // tile.channels)
    filled = np.zeros((tile.rows, groups * tile.channels), dtype=np.int32)
    for index, row in enumerate(rows):
        filled[index, :channels] = row
    split = filled.reshape(tile.rows, groups, tile.channels).transpose(1, 0, 2)
    return np.ascontiguousarray(split).reshape(-1)


_SCALED = {
    SHORT: "utvm_scale((int32_t)sum, s[SLOTS], s[2 * SLOTS], s[3 * SLOTS])",
    WIDE: "utvm_scale_wide((int32_t)sum, limits[2], limits[3], limits[4], limits[5])",
    WIDE_EACH: "utvm_scale_wide((int32_t)sum, s[SLOTS], s[2 * SLOTS], s[3 * SLOTS], s[4 * SLOTS])",
}


@lru_cache(maxsize=16)
def gemm_text(tile: ThumbTile) -> str:
    """The C text of the tile's function."""
    scaled = _SCALED[tile.rounding]
    body = replaced(
        family_text("thumb", "utvm_thumb_gemm"),
        ("SCALED", scaled, 1),
        ("SLOTS", str(tile.channels), 7 + scaled.count("SLOTS")),
        ("ROWS", str(tile.rows), 1),
    )
    return naked_function(tile.function, PRODUCT_PARAMETERS, _Writer(tile).lines(), body, CONDITION)


def _registers(tile: ThumbTile) -> tuple[tuple[str, ...], list[list[str]], list[str]]:
    """Pointers to pixels, sums by pixel and channel, and what is left for bytes.

    r0 and, with more than one pixel, r2 and r3 point at pixels; r1 at weights.
    """
    pointers = ("r0", "r2", "r3")[: tile.pixels]
    registers = [f"r{n}" for n in range(4, 12)]
    count = tile.pixels * tile.channels
    sums = [registers[p * tile.channels : (p + 1) * tile.channels] for p in range(tile.pixels)]
    free = [r for r in ("r2", "r3") if r not in pointers]
    return pointers, sums, [*free, *registers[count:], "r12", "lr"]


def loop_code(tile: ThumbTile, pixels: int, step: int) -> list[Instruction]:
    """The products of a turn of the inner loop, without its end."""
    pointers, sums, free = _registers(tile)
    code: list[Instruction] = []
    for k in range(1, step + 1):
        xs, ring = free[:pixels], free[pixels:]
        # All pixels' bytes, then as many weights as there are registers at a time.
        code += [
            load(x, pointer, k, size="sb", write_back=k == step)
            for x, pointer in zip(xs, pointers, strict=False)
        ]
        for first in range(0, tile.channels, len(ring)):
            some = list(range(first, min(first + len(ring), tile.channels)))
            code += [load(ring[c - first], "r1", tile.channels * k + c, size="sb") for c in some]
            code += [
                multiply_add("mla", sums[p][c], xs[p], ring[c - first], sums[p][c])
                for c in some
                for p in range(pixels)
            ]
    return code


class _Writer:
    """Writes the function for a tile."""

    def __init__(self, tile: ThumbTile) -> None:
        self.tile = tile
        self.routine = Routine(CORTEX_M3)
        self.pointers, self.sums, _ = _registers(tile)

    def lines(self) -> list[str]:
        r, tile = self.routine, self.tile
        arguments = _FRAME_BYTES + _SAVED_BYTES
        r.plain(
            "push {r4-r11, lr}",
            f"sub sp, #{_FRAME_BYTES}",
            f"str r0, [sp, #{_FIRST}]",
            f"str r1, [sp, #{_PANEL}]",
            f"strd r2, r3, [sp, #{_SCALING}]",
            *limits_stored(_LOW, _CLAMPS),
            f"add r0, sp, #{arguments}",
            "ldm r0, {r0, r1, r2, r3, r4}",
            f"strd r0, r1, [sp, #{_COLUMN}]",
            f"strd r2, r2, [sp, #{_CHANNELS_LEFT}]",
            f"str r4, [sp, #{_PITCH}]",
            f"bic r4, r3, #{tile.step - 1}",
            f"strd r3, r4, [sp, #{_DEPTH}]",
        )
        r.label("1")  # another group of channels
        r.plain(
            f"ldrd r0, r1, [sp, #{_FIRST}]",
            f"ldr r2, [sp, #{_COUNT}]",
            f"strd r0, r1, [sp, #{_X}]",
            f"str r2, [sp, #{_LEFT}]",
        )
        if tile.pixels > 1:
            r.plain(f"cmp r2, #{tile.pixels}", "blt 3f")
            r.label("2")
            self._tile(tile.pixels, 10)
            r.plain(f"cmp r2, #{tile.pixels}", "bge 2b")
            r.label("3")
            r.plain("cmp r2, #0", "beq 5f")
        r.label("4")
        self._tile(1, 20)
        r.plain("cmp r2, #0", "bgt 4b")
        r.label("5")
        r.plain(
            f"ldr r0, [sp, #{_PANEL}]",
            f"ldr r1, [sp, #{_DEPTH}]",
            f"ldr r2, [sp, #{_SCALING}]",
            f"ldr r3, [sp, #{_COLUMN}]",
            f"ldr r4, [sp, #{_CHANNELS_LEFT}]",
            *(["mov r5, r1"] if tile.channels == 3 else []),
            *({2: ["add r0, r0, r1, lsl #1"], 4: ["add r0, r0, r1, lsl #2"],
               3: ["add r0, r0, r1, lsl #1", "add r0, r5"]}[tile.channels]),
            f"adds r2, #{4 * tile.rows * tile.channels}",
            f"adds r3, #{tile.channels}",
            f"subs r4, #{tile.channels}",
            f"str r0, [sp, #{_PANEL}]",
            f"str r2, [sp, #{_SCALING}]",
            f"str r3, [sp, #{_COLUMN}]",
            f"str r4, [sp, #{_CHANNELS_LEFT}]",
            "bgt 1b",
            f"add sp, #{_FRAME_BYTES}",
            "pop {r4-r11, pc}",
        )  # fmt: skip
        return r.lines

    def _tile(self, pixels: int, label: int) -> None:
        """One tile; leaves in r2 how many pixels are left."""
        r, channels = self.routine, self.tile.channels
        first = self.sums[0]
        r.plain(
            f"ldr r0, [sp, #{_X}]",
            f"ldr r12, [sp, #{_PITCH}]",
            *(f"add {b}, {a}, r12" for a, b in zip(self.pointers, self.pointers[1:pixels],
                                                   strict=False)),
            f"ldr r1, [sp, #{_SCALING}]",
            f"ldm r1, {{{', '.join(first)}}}",
            f"ldr r1, [sp, #{_PANEL}]",
            *(f"mov {b}, {a}" for row in self.sums[1:pixels]
              for a, b in zip(first, row, strict=True)),
            # Loads count from one place before.
            *(f"subs {p}, #1" for p in self.pointers[:pixels]),
            f"subs r1, #{channels}",
            f"ldr r12, [sp, #{_STEPS}]",
            "cmp r12, #0",
            "add r12, r0",
            f"str r12, [sp, #{_END}]",
            f"beq {label + 1}f",
        )  # fmt: skip
        self._loop(pixels, label, self.tile.step)
        r.label(f"{label + 1}")
        r.plain(
            f"ldr r12, [sp, #{_X}]",
            f"ldr lr, [sp, #{_DEPTH}]",
            "add r12, lr",
            "subs r12, #1",
            "cmp r0, r12",
            f"beq {label + 3}f",
            f"str r12, [sp, #{_END}]",
        )
        self._loop(pixels, label + 2, 1)
        r.label(f"{label + 3}")
        self._finish(pixels, label)

    def _loop(self, pixels: int, label: int, step: int) -> None:
        r, channels = self.routine, self.tile.channels
        r.label(f"{label}", is_loop=True)
        r.straight(loop_code(self.tile, pixels, step), is_loop=True)
        r.plain(
            f"ldr r12, [sp, #{_END}]",
            f"adds r1, #{channels * step}",
            "cmp r0, r12",
            f"bne {label}b",
        )

    def _finish(self, pixels: int, label: int) -> None:
        r, channels = self.routine, self.tile.channels
        is_short, is_each = self.tile.rounding == SHORT, self.tile.rounding == WIDE_EACH
        code = [load("r0", "sp", _SCALING)] if is_short else []
        for c in range(channels):
            if is_short:
                rows = (("r1", 1), ("r3", 2), ("r12", 3))
                code += [load(t, "r0", 4 * (row * channels + c)) for t, row in rows]
            elif is_each or c == 0:
                # The shift last, where the table's address was.
                code.append(load("r0", "sp", _SCALING if is_each else _LIMITS))
                for row, t in enumerate(("r1", "r3", "r12", "r0"), 1):
                    at = 4 * (row * channels + c) if is_each else 4 * row + 4
                    code.append(load(t, "r0", at))
            for p in range(pixels):
                if is_short:
                    code += scaled(self.sums[p][c], "r1", "r3", "r12", "r2", "lr")
                else:
                    code += scaled_wide(self.sums[p][c], "r1", "r3", "r12", "r0", "r2", "lr")
        r.straight(code)
        sums = [register for registers in self.sums[:pixels] for register in registers]
        r.plain(*clamped(sums, _LOW, _CLAMPS, f"{label + 4}"))
        r.plain(
            f"ldrd r0, r1, [sp, #{_X}]",
            f"ldr r2, [sp, #{_PITCH}]",
            f"ldr r3, [sp, #{_CHANNELS}]",
            f"ldr r12, [sp, #{_CHANNELS_LEFT}]",
        )
        r.plain(*["add r0, r2"] * pixels)
        r.plain(f"cmp r12, #{channels}", f"blt {label + 5}f")
        for registers in self.sums[:pixels]:
            r.plain(*(f"strb {one}, [r1, #{c}]" for c, one in enumerate(registers)), "add r1, r3")
        r.plain(f"b {label + 6}f")
        r.label(f"{label + 5}")  # fewer channels
        for p in range(pixels):
            for c in range(channels):
                if c:
                    r.plain(f"cmp r12, #{c + 1}", "it ge",
                            f"strbge {self.sums[p][c]}, [r1, #{c}]")  # fmt: skip
                else:
                    r.plain(f"strb {self.sums[p][c]}, [r1]")
            r.plain("add r1, r3")
        r.label(f"{label + 6}")
        r.plain(
            f"ldr r2, [sp, #{_LEFT}]",
            f"strd r0, r1, [sp, #{_X}]",
            f"subs r2, #{pixels}",
            f"str r2, [sp, #{_LEFT}]",
        )
