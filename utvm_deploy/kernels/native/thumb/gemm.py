"""The matrix product of convolutions and fully connected layers: tiles of P pixels by C channels.

Each byte needs a register, so a tile of P x C takes P + C loads for P x C products. 2 x 4 fills
the registers: eight accumulators, three pointers, three bytes. The pixels that remain after the
last whole tile are computed one by one.

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
from itertools import pairwise

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.list_scheduler import cycles as cycles_of
from utvm_deploy.kernels.isa.mnemonics import Slot, at, pre
from utvm_deploy.kernels.native.gathered_gemm import PRODUCT_PARAMETERS
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.thumb.shared_blocks import (
    CONDITION,
    clamp,
    scale,
    scale_wide,
    store_limits,
)
from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3

#: How sums become outputs: two roundings in 32 bits, or one in 64 with one scale, or many.
SHORT, WIDE, WIDE_EACH = "", "_wide", "_wide_each"


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    pixels: Slot  # of the next tile
    output: Slot  # where the next tile goes
    left: Slot  # pixels after the next tile
    weights: Slot  # of this group of channels
    first_pixels: Slot
    first_output: Slot  # of this group of channels
    count: Slot  # pixels
    channels_left: Slot
    channels: Slot
    pitch: Slot
    low: Slot
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    depth: Slot
    steps: Slot  # products of a sum in whole turns of the inner loop
    end: Slot  # of the pixel that r0 points at, where the inner loop ends
    scaling: Slot  # of this group of channels
    limits: Slot


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

    def cycles(self, count: int, channels: int, depth: int) -> int:
        """About the cycles on a Cortex-M3 of the product of ``count`` pixels and ``channels``."""
        whole, rest = divmod(count, self.pixels)
        groups = -(-channels // self.channels)
        of_group = whole * self._tile_cycles(self.pixels, depth) + rest * self._tile_cycles(
            1, depth
        )
        return groups * of_group

    def _tile_cycles(self, pixels: int, depth: int) -> int:
        """About the cycles of a tile with that many pixels."""
        steps, rest = divmod(depth, self.step)
        outputs, products = pixels * self.channels, depth * _product_cycles(self, pixels)
        return _TILE_CYCLES + _OUTPUT_CYCLES * outputs + products + (steps + rest) * _TURN_CYCLES


#: The tiles that fit the registers and are the best for some layers.
TILES = tuple(
    ThumbTile(pixels, channels, step)
    for pixels, channels in ((2, 4), (2, 3), (3, 2), (1, 4), (2, 2))
    for step in (8, 4)
)
#: Of a turn of the inner loop: a load, the step of a pointer, a comparison, a taken branch.
_TURN_CYCLES = 2 + 1 + 1 + 3
#: About the cycles of a tile apart from its products, and of an output's requantization.
_TILE_CYCLES = 60
_OUTPUT_CYCLES = 14


@code_cache
def _product_cycles(tile: ThumbTile, pixels: int) -> int:
    """Cycles of one step of the depth. No instruction of the Cortex-M3 waits for another one."""
    a = Assembler(CORTEX_M3)
    _step(a, tile, pixels, 1)
    return cycles_of(a.code, CORTEX_M3)


def pack_weights(weights: Array, tile: ThumbTile) -> Array:
    """[channels, depth] -> the layout above."""
    return by_groups(weights.T, tile.channels).reshape(-1)


def pack_scaling(rows: Array, tile: ThumbTile) -> Array:
    """Rows with an entry for each channel -> the layout above."""
    return by_groups(rows, tile.channels).reshape(-1)


_SCALED = {
    SHORT: "utvm_scale((int32_t)sum, s[SLOTS], s[2 * SLOTS], s[3 * SLOTS])",
    WIDE: "utvm_scale_wide((int32_t)sum, limits[2], limits[3], limits[4], limits[5])",
    WIDE_EACH: "utvm_scale_wide((int32_t)sum, s[SLOTS], s[2 * SLOTS], s[3 * SLOTS], s[4 * SLOTS])",
}


@code_cache
def gemm_text(tile: ThumbTile) -> str:
    """The C text of the tile's function."""
    scaled = _SCALED[tile.rounding]
    body = replaced(
        family_text("thumb", "utvm_thumb_gemm"),
        ("SCALED", scaled, 1),
        ("SLOTS", str(tile.channels), 7 + scaled.count("SLOTS")),
        ("ROWS", str(tile.rows), 1),
    )
    return _routine(tile).c_function(tile.function, body, CONDITION)


def _registers(tile: ThumbTile) -> tuple[tuple[str, ...], list[list[str]], list[str]]:
    """Pointers to pixels, sums by pixel and channel, and registers that are free for bytes.

    r0 and, with more than one pixel, r2 and r3 point at pixels; r1 at weights.
    """
    pointers = ("r0", "r2", "r3")[: tile.pixels]
    registers = [f"r{n}" for n in range(4, 12)]
    count = tile.pixels * tile.channels
    sums = [registers[p * tile.channels : (p + 1) * tile.channels] for p in range(tile.pixels)]
    free = [r for r in ("r2", "r3") if r not in pointers]
    return pointers, sums, [*free, *registers[count:], "r12", "lr"]


def _step(a: Assembler, tile: ThumbTile, pixels: int, step: int) -> None:
    """The products of a turn of the inner loop, ``step`` for each sum."""
    pointers, sums, free = _registers(tile)
    for k in range(1, step + 1):
        xs, ring = free[:pixels], free[pixels:]
        # All pixels' bytes, then as many weights as there are registers at a time.
        for x, pointer in zip(xs, pointers, strict=False):
            a.ldrsb(x, pre(pointer, k) if k == step else at(pointer, k))
        for first in range(0, tile.channels, len(ring)):
            some = list(range(first, min(first + len(ring), tile.channels)))
            for c in some:
                a.ldrsb(ring[c - first], at("r1", tile.channels * k + c))
            for c in some:
                for p in range(pixels):
                    a.mla(sums[p][c], xs[p], ring[c - first], sums[p][c])


def _routine(tile: ThumbTile) -> Assembler:
    a = Assembler(CORTEX_M3, PRODUCT_PARAMETERS)
    a.enter(frame=_Slots)
    a.store(r0=_Slots.first_pixels, r1=_Slots.weights)
    a.strd("r2", "r3", _Slots.scaling)
    store_limits(a, _Slots.low, _Slots.clamps)
    a.add("r0", "sp", a.stack_argument("output").offset)
    a.ldm("r0", ("r0", "r1", "r2", "r3", "r4"))
    a.strd("r0", "r1", _Slots.first_output)
    a.strd("r2", "r2", _Slots.channels_left)
    a.str("r4", _Slots.pitch)
    a.bic("r4", "r3", tile.step - 1)
    a.strd("r3", "r4", _Slots.depth)
    with a.loop("gt"):  # a group of channels
        a.ldrd("r0", "r1", _Slots.first_pixels)
        a.ldr("r2", _Slots.count)
        a.strd("r0", "r1", _Slots.pixels)
        a.str("r2", _Slots.left)
        done = Label()
        if tile.pixels > 1:
            a.cmp("r2", tile.pixels)
            with a.unless("lt"), a.loop("ge"):
                _compute_tile(a, tile, tile.pixels)
                a.cmp("r2", tile.pixels)
            a.cmp("r2", 0)
            a.b(done, "eq")
        with a.loop("gt"):
            _compute_tile(a, tile, 1)
            a.cmp("r2", 0)
        a.place(done)
        _next_channels(a, tile)
    a.leave()
    return a


def _next_channels(a: Assembler, tile: ThumbTile) -> None:
    """Go to the next group of channels; flags: gt if there is one."""
    a.load(r0=_Slots.weights, r1=_Slots.depth, r2=_Slots.scaling, r3=_Slots.first_output)
    a.ldr("r4", _Slots.channels_left)
    if tile.channels == 3:
        a.mov("r5", "r1")
    a.add("r0", "r0", "r1", f"lsl #{tile.channels // 2}")
    if tile.channels == 3:
        a.add("r0", "r5")
    a.adds("r2", 4 * tile.rows * tile.channels)
    a.adds("r3", tile.channels)
    a.subs("r4", tile.channels)
    a.store(r0=_Slots.weights, r2=_Slots.scaling, r3=_Slots.first_output, r4=_Slots.channels_left)


def _compute_tile(a: Assembler, tile: ThumbTile, pixels: int) -> None:
    """One tile of that many pixels; r2 becomes the number of pixels after it."""
    _, sums, _ = _registers(tile)
    _start(a, tile, pixels)
    a.ldr("r12", _Slots.steps)
    a.cmp("r12", 0)
    a.add("r12", "r0")
    a.str("r12", _Slots.end)
    with a.unless("eq"):
        _multiply_to_end(a, tile, pixels, tile.step)
    a.load(r12=_Slots.pixels, lr=_Slots.depth)
    a.add("r12", "lr")
    a.subs("r12", 1)
    a.cmp("r0", "r12")
    with a.unless("eq"):
        a.str("r12", _Slots.end)
        _multiply_to_end(a, tile, pixels, 1)
    _finish(a, tile, [row[c] for c in range(tile.channels) for row in sums[:pixels]])
    clamp(a, [one for row in sums[:pixels] for one in row], _Slots.low, _Slots.clamps)
    _store(a, tile, sums[:pixels])


def _start(a: Assembler, tile: ThumbTile, pixels: int) -> None:
    """Registers of a tile: pointers one place before the first byte, and sums at the bias."""
    pointers, sums, _ = _registers(tile)
    a.load(r0=_Slots.pixels, r12=_Slots.pitch)
    for pointer, following in pairwise(pointers[:pixels]):
        a.add(following, pointer, "r12")
    a.ldr("r1", _Slots.scaling)
    a.ldm("r1", tuple(sums[0]))
    a.ldr("r1", _Slots.weights)
    for row in sums[1:pixels]:
        for bias, total in zip(sums[0], row, strict=True):
            a.mov(total, bias)
    for pointer in pointers[:pixels]:
        a.subs(pointer, 1)
    a.subs("r1", tile.channels)


def _multiply_to_end(a: Assembler, tile: ThumbTile, pixels: int, step: int) -> None:
    """Turns of ``step`` products until the pixels' pointer is at the slot ``end``."""
    with a.loop("ne", aligned=True):
        with a.scheduled(is_loop=True):
            _step(a, tile, pixels, step)
        a.ldr("r12", _Slots.end)
        a.adds("r1", tile.channels * step)
        a.cmp("r0", "r12")


def _finish(a: Assembler, tile: ThumbTile, sums: Sequence[str]) -> None:
    """Requantize to int8 in place; ``sums`` has all pixels of a channel before the next channel."""
    is_short, is_each = tile.rounding == SHORT, tile.rounding == WIDE_EACH
    pixels = len(sums) // tile.channels
    with a.scheduled():
        if is_short:
            a.ldr("r0", _Slots.scaling)
        for c in range(tile.channels):
            of_channel = sums[c * pixels : (c + 1) * pixels]
            if is_short:
                for row, target in enumerate(("r1", "r3", "r12"), 1):
                    a.ldr(target, at("r0", 4 * (row * tile.channels + c)))
            elif is_each or c == 0:
                a.ldr("r0", _Slots.scaling if is_each else _Slots.limits)
                # The shift last, where the table's address was.
                for row, target in enumerate(("r1", "r3", "r12", "r0"), 1):
                    place = 4 * (row * tile.channels + c) if is_each else 4 * row + 4
                    a.ldr(target, at("r0", place))
            for total in of_channel:
                if is_short:
                    scale(a, total, "r1", "r3", "r12", ("r2", "lr"))
                else:
                    scale_wide(a, total, "r1", ("r3", "r12"), "r0", ("r2", "lr"))


def _store(a: Assembler, tile: ThumbTile, sums: Sequence[Sequence[str]]) -> None:
    """Outputs of each pixel to the output; r2 becomes the number of pixels after them."""
    a.ldrd("r0", "r1", _Slots.pixels)
    a.load(r2=_Slots.pitch, r3=_Slots.channels, r12=_Slots.channels_left)
    for _ in sums:
        a.add("r0", "r2")
    a.cmp("r12", tile.channels)
    stored = Label()
    with a.unless("lt"):
        for row in sums:
            for c, one in enumerate(row):
                a.strb(one, at("r1", c))
            a.add("r1", "r3")
        a.b(stored)
    for row in sums:  # fewer channels
        a.strb(row[0], at("r1"))
        for c, one in enumerate(row[1:], 1):
            a.cmp("r12", c + 1)
            with a.when("ge"):
                a.strb(one, at("r1", c))
        a.add("r1", "r3")
    a.place(stored)
    a.ldr("r2", _Slots.left)
    a.strd("r0", "r1", _Slots.pixels)
    a.subs("r2", len(sums))
    a.str("r2", _Slots.left)
