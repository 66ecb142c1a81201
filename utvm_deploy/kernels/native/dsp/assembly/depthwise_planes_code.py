"""The inner block of depthwise convolutions over planes: up to eight outputs of a channel in a row.

A plane holds rows of one channel of the image as int16: [channel][row of the ring][column]. So a
word holds two neighbours, and one SMLAD does two taps. All outputs of a block start at the bias,
and each word of the plane is loaded once for all outputs that see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle

from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, instruction
from utvm_deploy.kernels.native.dsp.assembly.depthwise_planes_table import PARTIAL, SINGLE, Variant
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import (
    clamp,
    helper,
    load_limits,
    scale,
    scale_once,
)

PARAMETERS = """
const int16_t *planes, const int32_t *table, const int32_t *limits, int8_t *output, int32_t pixels,
int32_t channels, int32_t output_pitch, int32_t row_bytes, int32_t plane_bytes, int32_t multiplier,
int32_t kernel_rows, int32_t kernel_columns, int32_t stride, int32_t odd
"""
_SUMS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
_TAPS = ("r2", "r3", "r11", "r10", "r9", "r8")


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    left: Slot  # pixels of the row that are not stored yet
    output: Slot  # where the next block goes
    words: Slot  # the first words of the plane for the next block
    output_pitch: Slot
    row_bytes: Slot
    clamps: Slot  # 0: the limits are those of int8
    low: Slot
    high: Slot
    channels: Slot  # output channels that are left
    first_output: Slot  # of this output channel
    pixels: Slot  # of a row
    plane: Slot  # of this channel
    plane_bytes: Slot
    repeats: Slot  # output channels of this plane that are left
    multiplier: Slot


@dataclass(frozen=True)
class _Routine:
    """A routine in the making, its variant, and places that are branched to from far away."""

    a: Assembler
    variant: Variant
    clamp: Label = field(default_factory=Label)
    clamped: Label = field(default_factory=Label)
    store_some: Label = field(default_factory=Label)
    next_channel: Label = field(default_factory=Label)

    @property
    def sums(self) -> tuple[str, ...]:
        """A register for each output of a block."""
        return _SUMS[: self.variant.outputs]

    @property
    def spare(self) -> tuple[str, ...]:
        """Registers that the products leave alone; the first keeps the bytes of a row."""
        used = (*self.sums, *_TAPS[: self.variant.words])
        return tuple(one for one in ("r10", "r11", "r9", "r8") if one not in used)

    @property
    def pitch(self) -> str:
        """Keeps bytes from output to output while a block is stored."""
        return self.spare[-1] if len(self.spare) > 1 else "r2"

    @property
    def end_of_taps(self) -> int:
        """Bytes from a channel's taps to its scaling."""
        return 4 * self.variant.tap_words


@code_cache
def planes_text(core: str, variant: Variant) -> str:
    """The C text of the function, ordered for a core."""
    r = _Routine(Assembler(core, PARAMETERS), variant)
    _begin(r)
    if variant.tail == SINGLE:
        _compute_single_blocks(r)
    else:
        _compute_channels(r)
    r.a.leave()
    if variant.tail == PARTIAL:
        _store_some(r)
    _clamp(r)
    portable = helper("utvm_planes")
    if variant.once:
        portable = replaced(portable, ("utvm_scale_doubled(", "utvm_scale_once(", 1))
    return r.a.c_function(variant.function, portable, CONDITION)


def _begin(r: _Routine) -> None:
    """Put the arguments into their slots; r1 stays the table."""
    a = r.a
    a.enter(frame=_Slots)
    a.str(a.argument("planes"), _Slots.plane)
    a.str(a.argument("output"), _Slots.first_output)
    a.copy_arguments("r4", _Slots, "pixels", "channels", "output_pitch", "row_bytes")
    a.copy_arguments("r4", _Slots, "plane_bytes", "multiplier")
    a.ldr("r4", a.stack_argument("multiplier"))
    a.str("r4", _Slots.repeats)
    load_limits(a, a.argument("limits"), _Slots.low, _Slots.clamps)
    if r.spare:
        a.ldr(r.spare[0], _Slots.row_bytes)


def _compute_single_blocks(r: _Routine) -> None:
    """All channels, where a row is one block; their outputs and planes follow each other."""
    a = r.a
    a.load(r2=_Slots.plane, r3=_Slots.first_output)
    a.store(r2=_Slots.words, r3=_Slots.output)
    with a.loop("gt", aligned=True):
        with a.scheduled():
            _multiply(r)
            _requantize(r, left=_Slots.channels)
            # Slots are written after what read them: each value follows from the one before.
            a.add("r3", "r0", 1)
            a.sub("lr", "lr", 1)
            a.store(r3=_Slots.output, lr=_Slots.channels)
            a.add("r1", "r1", 4 * r.variant.channel_words)
            _store(r)
        a.b(r.clamp, "ne")
        a.place(r.clamped)
        a.cmp("lr", 0)


def _compute_channels(r: _Routine) -> None:
    """All channels, and of each all blocks of a row."""
    a = r.a
    with a.loop("gt"):
        with a.scheduled():
            a.load(r0=_Slots.plane, r3=_Slots.first_output, r4=_Slots.pixels)
            a.store(r0=_Slots.words, r3=_Slots.output, r4=_Slots.left)
        _compute_row(r)
        a.place(r.next_channel)
        with a.scheduled():
            a.load(r2=_Slots.repeats, r3=_Slots.first_output, r4=_Slots.plane)
            a.load(r5=_Slots.plane_bytes, r6=_Slots.channels)
            a.add("r1", "r1", 4 * r.variant.channel_words)
            a.add("r3", "r3", 1)
            a.str("r3", _Slots.first_output)
            a.subs("r2", "r2", 1)
        with a.when("eq"):
            a.add("r4", "r4", "r5")
            a.ldr("r2", _Slots.multiplier)
        with a.scheduled():
            a.store(r2=_Slots.repeats, r4=_Slots.plane)
            a.subs("r6", "r6", 1)
            a.str("r6", _Slots.channels)


def _compute_row(r: _Routine) -> None:
    """All blocks of a row of one channel."""
    a, outputs = r.a, r.variant.outputs
    block = a.here(aligned=True)
    with a.scheduled():
        _multiply(r)
        _requantize(r)
        if r.variant.tail != PARTIAL:
            a.sub("lr", "lr", outputs)
            a.str("lr", _Slots.left)
            _store(r)
            a.str("r0", _Slots.output)
    a.b(r.clamp, "ne")
    a.place(r.clamped)
    if r.variant.tail == PARTIAL:
        a.subs("lr", "lr", outputs)
        a.b(r.store_some, "lt")
        with a.scheduled():
            a.str("lr", _Slots.left)
            _store(r)
            a.str("r0", _Slots.output)
        a.b(block, "gt")
        return
    a.cmp("lr", outputs)
    a.b(block, "ge")
    a.cmp("lr", 0)
    a.b(r.next_channel, "le")
    # Too few outputs are left: the last block begins earlier and stores some of them again.
    a.rsb("r3", "lr", outputs)
    a.ldr("r4", _Slots.words)
    a.mov("r5", 2 * r.variant.stride)
    a.mls("r4", "r3", "r5", "r4")
    a.mls("r0", "r3", r.pitch, "r0")
    a.mov("r3", outputs)
    a.str("r4", _Slots.words)
    a.strd("r3", "r0", _Slots.left)
    a.b(block)


def _multiply(r: _Routine) -> None:
    """All products of a block: r1 is the channel's table, r0 becomes the words of the last row."""
    a, variant, last = r.a, r.variant, r.sums[-1]
    words = cycle(("r12", "lr", *r.spare[1:]))
    taps = _TAPS[: variant.words]
    a.ldr("r0", _Slots.words)
    _go_to_next_block(r)
    # The bias stays in the register of the last output until all others have begun.
    a.ldr(last, at("r1", r.end_of_taps))
    started = {last}
    for row in range(variant.rows):
        if row:
            if not r.spare:
                a.ldr("r12", _Slots.row_bytes)
            a.add("r0", "r0", r.spare[0] if r.spare else "r12")
        for number, register in enumerate(taps, row * variant.words):
            a.ldr(register, at("r1", 4 * number))
        for column in range(0, variant.reach, 2):
            word = next(words)
            a.ldr(word, at("r0", 2 * column))
            for output, total in enumerate(r.sums):
                product = variant.product(column - variant.odd - variant.stride * output)
                if product is not None:
                    name, tap = product
                    addend = total if total in started else last
                    a.emit(instruction(name, total, word, taps[tap], addend))
                    started.add(total)


def _requantize(r: _Routine, left: Slot = _Slots.left) -> None:
    """Sums become int8, as ``utvm_scale_doubled`` or ``_once`` do it; flags: ne if clamped.

    r0 becomes the output, r2 its pitch and lr what is ``left``.
    """
    a = r.a
    for number, register in enumerate(("r2", "r12", "r3"), 1):
        a.ldr(register, at("r1", r.end_of_taps + 4 * number))
    if r.variant.once:
        scale_once(a, r.sums, "r2", "r12", "r3")
    for total, temporary in zip(() if r.variant.once else r.sums, cycle(("lr", "r0"))):
        scale(a, (total,), "r2", "r12", "r3", temporary, is_doubled=True)
    a.ldr(r.pitch, _Slots.output_pitch)
    a.load(r0=_Slots.output, r3=_Slots.clamps, lr=left)
    a.subs("r3", "r3", 0)


def _store(r: _Routine) -> None:
    """Store a block to r0 and on, r2 bytes apart; r0 ends after the last output."""
    a = r.a
    for number, total in enumerate(r.sums):
        a.strb(total, at("r0", r.pitch if number % 2 else 0))
        if number % 2:
            a.add("r0", "r0", r.pitch, "lsl #1")
    if len(r.sums) % 2:
        a.add("r0", "r0", r.pitch)


def _go_to_next_block(r: _Routine) -> None:
    """The slot of words becomes that of the next block; r0 has this block's."""
    # A sum that has not begun. Its first product waits for the store, which is early so.
    a, free = r.a, r.sums[0]
    if r.variant.tail == SINGLE:
        a.ldr(free, _Slots.plane_bytes)
        a.add(free, free, "r0")
    else:
        a.add(free, "r0", 2 * r.variant.stride * r.variant.outputs)
    a.str(free, _Slots.words)


def _store_some(r: _Routine) -> None:
    """Store the last outputs of a row, fewer than a block has."""
    a = r.a
    a.place(r.store_some)
    a.add("lr", "lr", r.variant.outputs)
    for total in r.sums[:-1]:
        a.strb(total, at("r0"))
        a.add("r0", "r0", r.pitch)
        a.subs("lr", "lr", 1)
        a.b(r.next_channel, "le")
    a.b(r.next_channel)


def _clamp(r: _Routine) -> None:
    """Limit a block, and store it over what was stored without limits."""
    a = r.a
    a.place(r.clamp)
    with a.scheduled():
        a.load(r12=_Slots.low, r3=_Slots.high)
        clamp(a, r.sums, "r12", "r3", "r2")
        a.ldr(r.pitch, _Slots.output_pitch)
        if r.variant.tail != PARTIAL:
            # r0 is after the last output.
            a.mov("r3", r.variant.outputs)
            a.mls("r0", "r3", r.pitch, "r0")
            _store(r)
    a.b(r.clamped)
