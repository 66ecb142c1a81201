"""DEPTHWISE_CONV_2D by pixels: one pixel of four channels at a time, any window.

A word holds four channels of a pixel. Two SXTB16 make two pairs of halfwords of it, and each
product takes one half of such a pair and one half of a pair of weights. Groups of four channels
are outermost, so that a row of pixels reads one group's table.

    table    int32 [group][tap][w0 | w2 << 16, w1 | w3 << 16], then [bias, multiplier, offset,
             shift][channel] of the group
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, instruction, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import (
    CACHE_LINE_BYTES,
    clamp,
    helper,
    load_limits,
    scale,
    scale_once,
)
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise, Steps, row_depthwise_call
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.records.candidate import COMPACT_MOST

GROUP = 4  # channels
#: The window whose taps are all written out: rows, columns.
UNROLLED = (3, 3)
PARAMETERS = """
const int8_t *rows, const int32_t *table, const int32_t *limits, int8_t *output, int32_t row_pitch,
int32_t column_pitch, int32_t step, int32_t pixels, int32_t channels, int32_t kernel_rows,
int32_t kernel_columns
"""
_SUMS = ("r4", "r5", "r6", "r7")
_SCALING_BYTES = 4 * 4 * GROUP

# Cycles of the estimate.
_UNROLLED_PIXEL = 75.0  # of four channels
_TAP, _ROW_OF_TAPS, _LOOPED_PIXEL = 7.4, 14.9, 26.0
_COPIED_BYTE, _REPEATED_BYTE = 0.24, 0.75
_MISS = 21
# A cache line of the table: in each row of the output, and once more in the first of several rows
# or in the only row.
_LINE, _FIRST_LINE, _ONLY_LINE = 3.3, 48.0, 27.0


@dataclass(frozen=True)
class PixelsChoices(Choices):
    """Nothing to choose but the method."""

    method = "pixels"


@dataclass(frozen=True)
class DspRowProduct:
    """The micro-kernel of ``RowDepthwise`` for four channels of a pixel."""

    window: tuple[int, int]  # rows, columns
    once: bool = False  # requantized with one rounding

    label = "dsp"
    group = GROUP
    why = f"DSP assembly, {GROUP} channels in registers along a row"
    tables = buffers(table="int32", limits="int32")

    @property
    def function(self) -> str:
        once = "_once" if self.once else ""
        return f"utvm_depthwise{'_3x3' if self.window == UNROLLED else ''}{once}"

    def texts(self, core: str) -> tuple[str, ...]:
        scaling = helper("utvm_scale_once") if self.once else shared_text("utvm_scale")
        return scaling, _text(core, self)

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        return steps.row, steps.column, steps.window, count, channels, *self.window


@dataclass(frozen=True)
class DspPixels(RowDepthwise):
    """Shape parameters of a depthwise convolution that is done by pixels."""

    choices = PixelsChoices()

    @property
    def rounded_once(self) -> DspPixels:
        """The kernel for tables of ``single_rounding.py``."""
        return replace(self, product=DspRowProduct(self.window.kernel, once=True))

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes, in cycles."""
        w = self.window
        taps = w.kernel[0] * w.kernel[1]
        pixel = _UNROLLED_PIXEL
        if w.kernel != UNROLLED:
            pixel = _TAP * taps + _ROW_OF_TAPS * w.kernel[0] + _LOOPED_PIXEL
        groups = self.pitch // GROUP
        lines = groups * (8 * taps + _SCALING_BYTES) / CACHE_LINE_BYTES
        row = w.output_width * groups * pixel + lines * _LINE
        if self.is_copied:
            byte = _COPIED_BYTE if self.repeats == 1 else _REPEATED_BYTE
            row += w.kernel[0] * w.width * self.channels * byte
        image = w.height * w.width * self.channels / self.repeats
        first = _FIRST_LINE if w.output_height > 1 else _ONLY_LINE
        misses = image / CACHE_LINE_BYTES * _MISS
        return w.batch * (w.output_height * row + lines * first + misses)

    def make_call(
        self, call: KernelCall, tables: ConvolutionTables, scaling: Scaling
    ) -> KernelCall:
        """The call instead of the portable one."""
        table = pack_table(tables.weights.reshape(self.channels, -1).T, scaling)
        limits = np.array(tables.limits, dtype=np.int32)
        found = row_depthwise_call(call, self, tables.border, weights=table, limits=limits)
        return replace(found, heeds_compact=COMPACT_MOST)


def pack_table(weights: Array, scaling: Scaling) -> Array:
    """The table, from weights of [taps, channels]."""
    groups = by_groups([*weights, *scaling], GROUP).astype(np.int32)
    taps = groups[:, : len(weights)]
    words = taps[..., :2] & 0xFFFF | taps[..., 2:] << 16
    parts = [one.reshape(len(groups), -1) for one in (words, groups[:, len(weights) :])]
    return np.concatenate(parts, axis=1).reshape(-1)


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    output: Slot  # of the next pixel
    left: Slot  # pixels of the row
    channels: Slot  # of the output, and bytes from pixel to pixel
    step: Slot
    rows: Slot  # this group at the first pixel
    special: Slot  # 0: all four channels are stored, without limits
    row_pitch: Slot
    first_output: Slot  # of this group
    pixels: Slot
    channels_left: Slot
    low: Slot
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    group_bytes: Slot  # of the table
    table: Slot  # of this group
    kernel_rows: Slot
    kernel_columns: Slot
    next_row: Slot  # from after the last tap of a row to the first of the next
    column_pitch: Slot


@code_cache
def _text(core: str, product: DspRowProduct) -> str:
    """The C text of the function for a window, ordered for a core."""
    a, is_unrolled = Assembler(core, PARAMETERS), product.window == UNROLLED
    special, group_done = Label(), Label()
    _begin(a)
    with a.loop("gt"):  # four more channels
        _begin_group(a, is_unrolled)
        with a.loop("ne") as pixel:
            if is_unrolled:
                with a.scheduled():
                    _multiply_unrolled(a)
                    _requantize(a, 8 * UNROLLED[0] * UNROLLED[1], once=product.once)
                    _go_to_next_pixel(a, ("r0", "r1", "r2"))
            else:
                _multiply_in_loops(a)
                with a.scheduled():
                    _requantize(a, 0, once=product.once)
                    _go_to_next_pixel(a, ("r0",))
            a.b(special, "ne")
            _store(a)
        a.place(group_done)
        _go_to_next_group(a)
    a.leave()
    a.place(special)
    _store_special(a, pixel, group_done)
    portable = helper("utvm_depthwise")
    if product.once:
        portable = replaced(portable, ("utvm_scale(", "utvm_scale_once(", 1))
    return a.c_function(product.function, portable, CONDITION)


def _begin(a: Assembler) -> None:
    """Put the arguments into their slots, and what follows from them."""
    a.enter(frame=_Slots)
    a.str(a.argument("rows"), _Slots.rows)
    a.str(a.argument("table"), _Slots.table)
    a.str(a.argument("output"), _Slots.first_output)
    a.copy_arguments("r4", _Slots, "row_pitch", "column_pitch", "step", "pixels", "channels")
    a.copy_arguments("r4", _Slots, "kernel_rows", "kernel_columns")
    a.ldr("r4", _Slots.channels)
    a.str("r4", _Slots.channels_left)
    a.load(r5=_Slots.kernel_rows, r6=_Slots.kernel_columns)
    a.load(r7=_Slots.column_pitch, r8=_Slots.row_pitch)
    a.mul("r7", "r7", "r6")
    a.sub("r8", "r8", "r7")
    a.str("r8", _Slots.next_row)
    a.mul("r5", "r5", "r6")
    a.lsl("r5", "r5", 3)
    a.add("r5", "r5", _SCALING_BYTES)
    a.str("r5", _Slots.group_bytes)
    load_limits(a, a.argument("limits"), _Slots.low, _Slots.clamps)


def _begin_group(a: Assembler, is_unrolled: bool) -> None:
    """Go to the first pixel: r0 its first tap, r3 the pitch of columns, r12 the table."""
    a.load(r4=_Slots.clamps, r5=_Slots.channels_left)
    a.cmp("r5", GROUP)
    with a.when("lt"):
        a.mov("r4", 1)
    a.str("r4", _Slots.special)
    a.load(r4=_Slots.first_output, r5=_Slots.pixels)
    a.strd("r4", "r5", _Slots.output)
    a.load(r12=_Slots.table, r3=_Slots.column_pitch, r0=_Slots.rows)
    if is_unrolled:
        a.ldr("r4", _Slots.row_pitch)
        a.add("r1", "r0", "r4")
        a.add("r2", "r1", "r4")


def _multiply_unrolled(a: Assembler) -> None:
    """All products of a pixel; r0, r1 and r2 are the first taps of its rows."""
    rows, columns = UNROLLED
    _load_bias(a, "r12", 8 * rows * columns)
    registers = cycle(("r8", "r9", "r10", "r11", "lr"))
    for tap in range(rows * columns):
        row, column = divmod(tap, columns)
        odd, even_weights, even, odd_weights = (next(registers) for _ in range(4))
        a.ldr(odd, at(f"r{row}", (0, "r3", "r3, lsl #1")[column]))
        a.ldr(even_weights, at("r12", 8 * tap))
        a.sxtb16(even, odd)
        a.sxtb16(odd, odd, "ror #8")
        _multiply_pair(a, _SUMS[0::2], even, even_weights)
        a.ldr(odd_weights, at("r12", 8 * tap + 4))
        _multiply_pair(a, _SUMS[1::2], odd, odd_weights)


def _multiply_in_loops(a: Assembler) -> None:
    """All products of a pixel; r0 is its first tap, and r12 ends at the group's scaling."""
    a.load(r12=_Slots.table, r8=_Slots.group_bytes)
    a.add("r8", "r8", "r12")
    a.sub("r8", "r8", _SCALING_BYTES)
    with a.scheduled():
        _load_bias(a, "r8", 0)
        a.ldr("r2", _Slots.kernel_rows)
        a.mov("r1", "r0")
    with a.loop("ne"):  # r2 rows
        a.ldr("lr", _Slots.kernel_columns)
        with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            a.ldr("r8", at("r1"))
            a.add("r1", "r1", "r3")
            a.ldr("r10", at("r12"))
            a.ldr("r11", at("r12", 4))
            a.add("r12", "r12", 8)
            a.sxtb16("r9", "r8", "ror #8")
            a.sxtb16("r8", "r8")
            _multiply_pair(a, _SUMS[0::2], "r8", "r10")
            _multiply_pair(a, _SUMS[1::2], "r9", "r11")
            a.subs("lr", "lr", 1)
        a.ldr("r8", _Slots.next_row)
        a.subs("r2", "r2", 1)
        a.add("r1", "r1", "r8")


def _load_bias(a: Assembler, scaling: str, offset: int) -> None:
    for number, total in enumerate(_SUMS):
        a.ldr(total, at(scaling, offset + 4 * number))


def _multiply_pair(a: Assembler, sums: tuple[str, ...], bytes_: str, weights: str) -> None:
    """Add the products of two halfwords to two sums."""
    for mnemonic, total in zip(("smlabb", "smlatt"), sums, strict=True):
        a.emit(instruction(mnemonic, total, bytes_, weights, total))


def _requantize(a: Assembler, offset: int, *, once: bool) -> None:
    """Sums become int8, packed in r4; the group's scaling is at r12 and this offset."""
    sets = ("r8", "r9", "r10", "r11"), ("lr", "r9", "r10", "r8")
    for channel, total in enumerate(_SUMS):
        multiplier, shift, addend, temporary = sets[channel % 2]
        for row, register in enumerate((multiplier, addend, shift), 1):
            a.ldr(register, at("r12", offset + 4 * (row * GROUP + channel)))
        if once:
            scale_once(a, (total,), multiplier, addend, shift)
        else:
            scale(a, (total,), multiplier, addend, shift, temporary)
    for number, total in enumerate(_SUMS[1:], 1):
        a.bfi("r4", total, 8 * number, 8)


def _go_to_next_pixel(a: Assembler, first_taps: tuple[str, ...]) -> None:
    """Move the registers of first taps on; flags: ne if this pixel is special."""
    a.ldr("r8", _Slots.step)
    for register in first_taps:
        a.add(register, register, "r8")
    a.ldr("r11", _Slots.special)
    a.subs("r11", "r11", 0)


def _store(a: Assembler) -> None:
    """Store four channels; flags: ne if pixels are left."""
    with a.scheduled():
        a.load(r8=_Slots.output, r9=_Slots.channels, r10=_Slots.left)
        a.str("r4", at("r8"))
        a.add("r8", "r8", "r9")
        a.subs("r10", "r10", 1)
        a.store(r8=_Slots.output, r10=_Slots.left)


def _go_to_next_group(a: Assembler) -> None:
    """Go to the next four channels; flags: gt if there are any."""
    a.load(r4=_Slots.table, r5=_Slots.group_bytes, r6=_Slots.rows)
    a.load(r7=_Slots.first_output, r8=_Slots.channels_left)
    a.add("r4", "r4", "r5")
    a.add("r6", "r6", GROUP)
    a.add("r7", "r7", GROUP)
    a.store(r4=_Slots.table, r6=_Slots.rows, r7=_Slots.first_output)
    a.subs("r8", "r8", GROUP)
    a.str("r8", _Slots.channels_left)


def _store_special(a: Assembler, pixel: Label, group_done: Label) -> None:
    """Limit a pixel, and store it: all four channels, or fewer one by one."""
    with a.scheduled():
        a.load(r8=_Slots.low, r9=_Slots.high, r11=_Slots.channels_left)
        clamp(a, ("r4",), "r8", "r9", "r10")
    a.cmp("r11", GROUP)
    with a.unless("lt"):
        _store(a)
        a.b(pixel, "ne")
        a.b(group_done)
    a.ldr("r8", _Slots.output)
    a.mov("r9", "r8")
    with a.loop("gt"):
        a.strb("r4", post("r9", 1))
        a.lsr("r4", "r4", 8)
        a.subs("r11", 1)
    a.load(r9=_Slots.channels, r10=_Slots.left)
    a.add("r8", "r8", "r9")
    a.str("r8", _Slots.output)
    a.subs("r10", 1)
    a.str("r10", _Slots.left)
    a.b(pixel, "ne")
    a.b(group_done)
