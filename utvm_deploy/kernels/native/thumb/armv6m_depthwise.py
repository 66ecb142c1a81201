"""Depthwise convolutions for cores with Thumb alone (Cortex-M0): up to four pixels of a channel.

Such a core can load and multiply in eight registers only. Four of them point to pixels and share
one offset, which goes from tap to tap. The others hold that offset, the weights' address, a weight
and a product. The sums are in r8 to r11, which ADD reaches.

The pixels that remain at the end of a row have separate code. So ``count`` must have the
remainder that the tile was made for. The tables are those of ``depthwise_code.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.row_depthwise import ChannelRows
from utvm_deploy.kernels.native.thumb.depthwise_code import (
    MOST_UNROLLED_TAPS,
    PARAMETERS,
    portable_body,
)
from utvm_deploy.kernels.native.thumb.shared_blocks import ARMV6M_CONDITION

#: Every sum stays below this, so that ``_finish`` needs 32 bits only.
SUM_LIMIT = 1 << 29
#: Instructions of a tile, of each of its taps, of each output, and of each product.
_TILE, _TAP, _OUTPUT, _PRODUCT = 26, 3, 30, 3
_SUMS = ("r8", "r9", "r10", "r11")
#: Addresses of the pixels of a tile, in the order in which ``_start`` gets them.
_PIXELS = ("r0", "r2", "r3", "r1")
_LARGEST_CONSTANT = 255  # of ADDS and MOVS


class _Slots(StackFrame):
    """What a routine keeps on the stack. Comments name the registers of a load of several words."""

    pixel: Slot  # r0: the first of the next tile
    step: Slot  # r1: bytes from pixel to pixel
    bias: Slot  # r4: of this channel, like the rest of its scaling below
    weights: Slot  # r5: of this channel
    column_pitch: Slot  # r6
    next_row: Slot  # r7: bytes from the last tap of a row to the first of the next
    offset: Slot  # r1
    rounding: Slot  # r2
    multiplier_low: Slot  # r5
    multiplier_high: Slot  # r6
    shift: Slot  # r7
    output: Slot  # of the next tile
    left: Slot  # pixels in whole tiles, with those of the next one
    tile_step: Slot  # bytes from tile to tile
    first_pixel: Slot  # of the next channel, like the next three
    first_output: Slot
    next_weights: Slot
    next_scaling: Slot
    channels_left: Slot
    channels: Slot
    count: Slot
    low: Slot
    high: Slot


@dataclass(frozen=True)
class Armv6mTile:
    """A window's rows and columns, the pixels of a tile, and those that are left of a row."""

    rows: int
    columns: int
    pixels: int
    rest: int

    @property
    def taps(self) -> int:
        return self.rows * self.columns

    def row_instructions(self, count: int) -> int:
        """About the instructions of a row of ``count`` outputs of a channel."""

        def instructions(pixels: int) -> int:
            return _TILE + _TAP * self.taps + pixels * (_OUTPUT + _PRODUCT * self.taps)

        rest = instructions(self.rest) if self.rest else 0
        return count // self.pixels * instructions(self.pixels) + rest


def best_tile(rows: int, columns: int, count: int) -> Armv6mTile:
    """The tile that takes the fewest instructions for rows of ``count`` outputs."""
    most = min(count, len(_SUMS))
    tiles = [Armv6mTile(rows, columns, n, count % n) for n in range(most, 0, -1)]
    # Of equals, one without a rest: it has less code.
    return min(tiles, key=lambda tile: (tile.row_instructions(count), tile.rest > 0))


@dataclass(frozen=True)
class Armv6mRowProduct(ChannelRows):
    """The micro-kernel of this module."""

    tile: Armv6mTile
    label: ClassVar[str] = "plain"

    @property
    def function(self) -> str:
        t = self.tile
        return f"utvm_plain_depthwise_{t.rows}x{t.columns}_{t.pixels}_{t.rest}"

    @property
    def why(self) -> str:
        return f"Thumb assembly, {self.tile.pixels} pixels of a channel in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale"), _text(self.tile, self.function)


def armv6m_row_product(window: Window) -> Armv6mRowProduct:
    """The product with the best tile for a window."""
    return Armv6mRowProduct(best_tile(*window.kernel, window.output_width))


@code_cache
def _text(tile: Armv6mTile, function: str) -> str:
    """The C text of the function for a window."""
    body = portable_body(tile.rows, tile.columns)
    return _routine(tile).c_function(function, body, ARMV6M_CONDITION)


def _routine(tile: Armv6mTile) -> Assembler:
    a = Assembler(parameters=PARAMETERS, has_thumb2=False)
    a.enter(frame=_Slots)
    _begin(a, tile)
    with a.loop("gt"):  # a channel
        _next_channel(a, tile)
        with a.loop("gt"):
            _compute_tile(a, tile, tile.pixels)
            _next_tile(a, tile)
        if tile.rest:
            _compute_tile(a, tile, tile.rest)
        a.ldr("r0", _Slots.channels_left)
        a.subs("r0", 1)
        a.str("r0", _Slots.channels_left)
    a.leave()
    return a


def _compute_tile(a: Assembler, tile: Armv6mTile, pixels: int) -> None:
    """Outputs of that many pixels; r4 becomes the address of the next output."""
    sums = _SUMS[:pixels]
    _start(a, sums)
    _multiply(a, tile, sums)
    _load_scaling(a)
    for total in sums:
        _finish(a, total)
        _store(a)


def _begin(a: Assembler, tile: Armv6mTile) -> None:
    """Put the arguments into their slots."""
    a.str(a.argument("rows"), _Slots.first_pixel)
    a.str(a.argument("weights"), _Slots.next_weights)
    a.str(a.argument("scaling"), _Slots.next_scaling)
    limits = a.argument("limits")
    a.ldr("r0", at(limits))
    a.ldr("r1", at(limits, 4))
    a.store(r0=_Slots.low, r1=_Slots.high)
    a.add("r0", "sp", a.stack_argument("output").offset)
    a.ldmia("r0!", ("r1", "r2", "r3", "r4", "r5", "r6"))
    a.str("r1", _Slots.first_output)
    a.movs("r7", tile.columns - 1)
    a.muls("r7", "r3")
    a.subs("r2", "r2", "r7")
    a.store(r2=_Slots.next_row, r3=_Slots.column_pitch, r4=_Slots.step)
    a.movs("r7", tile.pixels)
    a.muls("r7", "r4")
    a.store(r7=_Slots.tile_step, r5=_Slots.count, r6=_Slots.channels)
    a.str("r6", _Slots.channels_left)
    # 2^30, so that no sum of _finish is negative, and one half of 2^16.
    a.movs("r0", 1)
    a.lsls("r1", "r0", 30)
    a.lsls("r0", "r0", 15)
    a.adds("r0", "r0", "r1")
    a.str("r0", _Slots.rounding)


def _next_channel(a: Assembler, tile: Armv6mTile) -> None:
    """Fill the slots of the next channel."""
    a.ldr("r0", _Slots.next_scaling)
    a.ldmia("r0!", ("r1", "r2", "r3", "r4"))
    a.store(r0=_Slots.next_scaling, r1=_Slots.bias)
    a.uxth("r5", "r2")
    a.lsrs("r6", "r2", 16)
    a.store(r5=_Slots.multiplier_low, r6=_Slots.multiplier_high)
    # The 2^30 of the slot "rounding" has become 2^14 where the offset is added.
    a.movs("r5", 1)
    a.lsls("r5", "r5", 14)
    a.subs("r3", "r3", "r5")
    a.store(r3=_Slots.offset, r4=_Slots.shift)
    for following, current, size in (
        (_Slots.first_pixel, _Slots.pixel, 1),
        (_Slots.first_output, _Slots.output, 1),
        (_Slots.next_weights, _Slots.weights, tile.taps),
    ):
        a.ldr("r0", following)
        a.str("r0", current)
        _add_constant(a, "r0", size)
        a.str("r0", following)
    a.ldr("r0", _Slots.count)
    if tile.rest:
        a.subs("r0", tile.rest)
    a.str("r0", _Slots.left)


def _start(a: Assembler, sums: Sequence[str]) -> None:
    """Registers of a tile: pointers to its pixels, the sums at the bias, and the offset 0."""
    a.add("r2", "sp", _Slots.pixel.offset)
    a.ldmia("r2!", ("r0", "r1", "r4", "r5", "r6", "r7"))
    a.mov("r12", "r6")
    a.mov("lr", "r7")
    for total in sums:
        a.mov(total, "r4")
    for pixel, following in pairwise(_PIXELS[: len(sums)]):
        a.adds(following, pixel, "r1")
    a.movs("r4", 0)


def _multiply(a: Assembler, tile: Armv6mTile, sums: Sequence[str]) -> None:
    """All taps: written out, or a loop over the rows of the window."""
    if tile.taps <= MOST_UNROLLED_TAPS:
        for row in range(tile.rows):
            _multiply_row(a, tile, row * tile.columns, sums)
            if row < tile.rows - 1:
                a.add("r4", "lr")
        return
    with a.loop("ne"):
        _multiply_row(a, tile, 0, sums)
        a.add("r4", "lr")
        a.adds("r5", tile.columns)
        a.ldr("r6", _Slots.next_weights)
        a.cmp("r5", "r6")


def _multiply_row(a: Assembler, tile: Armv6mTile, first: int, sums: Sequence[str]) -> None:
    """The products of one row of the window; ``first`` is its first weight."""
    for column in range(tile.columns):
        _step(a, first + column, sums)
        if column < tile.columns - 1:
            a.add("r4", "r12")


def _step(a: Assembler, weight: int, sums: Sequence[str]) -> None:
    """The products of one tap."""
    a.movs("r6", weight)
    a.ldrsb("r6", at("r5", "r6"))
    for pixel, total in zip(_PIXELS, sums, strict=False):
        a.ldrsb("r7", at(pixel, "r4"))
        a.muls("r7", "r6")
        a.add(total, "r7")


def _load_scaling(a: Assembler) -> None:
    """What ``_finish`` and ``_store`` need: r5, r6 and r7, r12 and lr, and the output in r4."""
    a.add("r0", "sp", _Slots.offset.offset)
    a.ldmia("r0!", ("r1", "r2", "r5", "r6", "r7"))
    a.mov("r12", "r1")
    a.mov("lr", "r2")
    a.ldr("r4", _Slots.output)


def _finish(a: Assembler, total: str) -> None:
    """Requantize a sum to r1, by the rounding of ``utvm_scale``, and limit it.

    Let x = 2 * sum. Its halves are x1 and x0, those of the multiplier m1 and m0. The high word of
    their product is x1 m1 + ((x1 m0 + x0 m1 + (x0 m0 >> 16)) >> 16). With 2^30, and one half for
    rounding, the sum in brackets is from 0 to 2^32, as long as x is between -2^30 and 2^30.
    """
    a.mov("r0", total)
    a.adds("r0", "r0", "r0")
    a.asrs("r1", "r0", 16)  # x1
    a.uxth("r2", "r0")  # x0
    a.mov("r3", "r2")
    a.muls("r3", "r5")
    a.lsrs("r3", "r3", 16)
    a.muls("r2", "r6")
    a.adds("r2", "r2", "r3")
    a.mov("r3", "r1")
    a.muls("r3", "r5")
    a.adds("r2", "r2", "r3")
    a.add("r2", "lr")
    a.lsrs("r2", "r2", 16)
    a.muls("r1", "r6")
    a.adds("r1", "r1", "r2")
    a.asrs("r0", "r0", 31)  # -1 for negative sums
    a.adds("r1", "r1", "r0")
    a.add("r1", "r12")
    a.asrs("r1", "r7")
    a.load(r2=_Slots.low, r3=_Slots.high)
    a.cmp("r1", "r2")
    with a.unless("ge"):
        a.mov("r1", "r2")
    a.cmp("r1", "r3")
    with a.unless("le"):
        a.mov("r1", "r3")


def _store(a: Assembler) -> None:
    """Store r1; r4 becomes the address of the next output."""
    a.strb("r1", at("r4"))
    a.ldr("r2", _Slots.channels)
    a.adds("r4", "r4", "r2")


def _next_tile(a: Assembler, tile: Armv6mTile) -> None:
    """Go to the next tile; flags: gt if there is a whole one."""
    a.load(r0=_Slots.pixel, r1=_Slots.tile_step)
    a.adds("r0", "r0", "r1")
    a.store(r0=_Slots.pixel, r4=_Slots.output)
    a.ldr("r2", _Slots.left)
    a.subs("r2", tile.pixels)
    a.str("r2", _Slots.left)


def _add_constant(a: Assembler, register: str, constant: int) -> None:
    while constant > 0:
        a.adds(register, min(constant, _LARGEST_CONSTANT))
        constant -= _LARGEST_CONSTANT
