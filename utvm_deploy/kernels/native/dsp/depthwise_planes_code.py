"""The inner block of depthwise convolutions over planes: several outputs of one channel in a row.

Rows of the image lie in scratch as int16, channel by channel, so that a word holds two neighbours
in a row and one SMLAD does two taps. All outputs of a block start at the bias, and each word of the
plane is loaded once for all outputs that see it.

planes   int16 [channel][row of the ring][column]; the image's first column stands at an even one
table    int32 [output channel][row][word of two taps], then bias, multiplier, offset, shift; taps
         and bias are doubled, as requantization wants the sum

At odd strides word t holds taps t and t + 1; single taps take one half. At even strides every
output sees the taps at the same halves: words stand side by side, filled with zeros.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.dsp import selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    load,
    multiply_add,
    saturate,
    shift_right,
    store,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine
from utvm_deploy.kernels.native.dsp.code import c_text
from utvm_deploy.kernels.native.dsp.tile import limits_prologue
from utvm_deploy.kernels.native.scaling import Scaling

PARAMETERS = (
    "const int16_t *planes",
    "const int32_t *table",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t pixels",
    "int32_t channels",
    "int32_t output_pitch",
    "int32_t row_bytes",
    "int32_t plane_bytes",
    "int32_t multiplier",
    "int32_t kernel_rows",
    "int32_t kernel_columns",
    "int32_t stride",
    "int32_t odd",
)
#: Kernels are written out whole up to these.
LARGEST_ROWS, LARGEST_COLUMNS = 7, 7
#: A row's last block has fewer outputs; or it begins earlier, with outputs that are done; or a row
#: is one block, of a channel that has no other outputs.
PARTIAL, SHIFTED, SINGLE = "partial", "shifted", "single"
#: Outputs computed together.
OUTPUTS = (8, 6, 4, 2)
_REGISTERS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
_WORDS = ("r2", "r3", "r11", "r10", "r9", "r8")
_PLANE = ("r12", "lr")
_SAVED_BYTES = 36
# Slots on the stack.
_LEFT = 0  # pixels
_OUTPUT = 4  # where the next block goes
_PLANES = 8  # the next block's first word
_PITCH = 12
_ROW_BYTES = 16
_CLAMPS = 20
_LOW = 24
_HIGH = 28
_CHANNELS_LEFT = 32
_COLUMN = 36  # the channel's first output
_PIXELS = 40
_PLANE_START = 44
_PLANE_BYTES = 48
_REPEATS = 52  # outputs of this plane that are left
_MULTIPLIER = 56
_FRAME_BYTES = 60


class PlanesForm(NamedTuple):
    """What the code depends on."""

    rows: int
    columns: int
    stride: int
    odd: int  # the first window begins at an odd column
    outputs: int
    tail: str  # what becomes of a row's last outputs

    @property
    def words(self) -> int:
        """Words of taps in a row."""
        if self.stride % 2:
            return max(self.columns - 1, 1)
        return -(-(self.columns + self.odd) // 2)

    @property
    def reach(self) -> int:
        """Columns that a block of outputs loads, an even number."""
        return -(-(self.odd + self.stride * (self.outputs - 1) + self.columns) // 2) * 2

    @property
    def channel_words(self) -> int:
        """Words of the table for a channel."""
        return self.rows * self.words + 4

    @property
    def name(self) -> str:
        """The C function."""
        odd = "_odd" if self.odd else ""
        window = f"{self.rows}x{self.columns}_s{self.stride}{odd}"
        return f"utvm_planes_{window}_by_{self.outputs}_{self.tail}"

    @property
    def spare(self) -> tuple[str, ...]:
        """Registers that products leave alone."""
        used = (*_REGISTERS[: self.outputs], *_WORDS[: self.words])
        return tuple(r for r in ("r10", "r11", "r9", "r8") if r not in used)

    def place(self, tap: int) -> tuple[int, int]:
        """Word and half of a tap."""
        if self.stride % 2 == 0:
            return divmod(tap + self.odd, 2)
        is_last = int(self.columns > 1 and tap == self.columns - 1)
        return tap - is_last, is_last

    @property
    def fits(self) -> bool:
        """Whether there are registers enough."""
        words = len(_WORDS) - max(0, self.outputs - 4)
        are_enough = self.outputs <= len(_REGISTERS) and self.words <= words
        return are_enough and self.rows <= LARGEST_ROWS and self.columns <= LARGEST_COLUMNS


def form_of(
    kernel: tuple[int, int],
    stride: int,
    odd: int,
    outputs: int,
    output_width: int,
    multiplier: int,
) -> PlanesForm:
    """The form for rows of so many outputs."""
    # The last block can only begin earlier by an even number of columns.
    shift = -output_width % outputs * stride
    tail = PARTIAL if output_width < outputs or shift % 2 else SHIFTED
    if output_width == outputs and multiplier == 1:
        tail = SINGLE
    return PlanesForm(*kernel, stride, odd, outputs, tail)


def pack_table(weights: Array, scaling: Scaling, form: PlanesForm) -> Array:
    """[rows, columns, channels] and the scales -> the layout above."""
    channels = weights.shape[2]
    table = np.zeros((channels, form.channel_words), dtype=np.int64)
    for row in range(form.rows):
        for tap in range(form.columns):
            places = [form.place(tap)]
            if form.stride % 2 and 0 < tap < form.columns - 1:
                places.append((tap - 1, 1))
            for word, half in places:
                values = 2 * weights[row, tap].astype(np.int64) & 0xFFFF
                table[:, row * form.words + word] |= values << (16 * half)
    for number, one in enumerate(scaling):
        table[:, form.rows * form.words + number] = one.astype(np.int64) * (2 if number == 0 else 1)
    packed: Array = table.reshape(-1).astype(np.uint32).view(np.int32)
    return packed


@lru_cache(maxsize=32)
def planes_text(core: str, form: PlanesForm) -> str:
    """The C text of the function, ordered for a core."""
    return c_text(form.name, PARAMETERS, _routine(timing_of(core), form), portable="utvm_planes")


def _routine(timing: Timing, form: PlanesForm) -> Routine:
    r = Routine(timing)
    arguments = _FRAME_BYTES + _SAVED_BYTES
    copied = (
        (_PIXELS, 0), (_CHANNELS_LEFT, 4), (_PITCH, 8), (_ROW_BYTES, 12), (_PLANE_BYTES, 16),
        (_MULTIPLIER, 20), (_REPEATS, 20),
    )  # fmt: skip
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r0, [sp, #{_PLANE_START}]",
        f"str r3, [sp, #{_COLUMN}]",
    )
    for slot, offset in copied:
        r.plain(f"ldr r4, [sp, #{arguments + offset}]", f"str r4, [sp, #{slot}]")
    r.plain(*limits_prologue("r2", _LOW, _CLAMPS))
    if form.spare:
        r.plain(f"ldr {form.spare[0]}, [sp, #{_ROW_BYTES}]")
    accumulators = _REGISTERS[: form.outputs]
    block = [*_rows(form, accumulators), *_finish(form, accumulators)]
    if form.tail == SINGLE:
        _channels_of_single_blocks(r, form, block)
    else:
        _channels(r, form, block)
    r.plain(f"add sp, #{_FRAME_BYTES}", "pop {r4-r11, pc}")
    if form.tail == PARTIAL:
        r.label("6")  # fewer outputs than a block has
        r.plain(f"add r3, r3, #{form.outputs}")
        for register in accumulators[:-1]:
            r.plain(f"strb {register}, [r0]", "add r0, r0, r2", "subs r3, r3, #1", "ble 4b")
        r.plain("b 4b")
    r.label("8")
    code = [load("r12", "sp", _LOW), load("lr", "sp", _HIGH)]
    for register in accumulators:
        code += selected("r2", register, "r12", register, "r12")
        code += selected("r2", "lr", register, register, "lr")
    code.append(load("r2", "sp", _PITCH))
    if form.tail != PARTIAL:
        # Over what was not clamped.
        code += [load("r0", "sp", _OUTPUT), load("r3", "sp", _LEFT), *_store(accumulators)]
    r.straight(code)
    r.plain("b 3b")
    return r


def _channels_of_single_blocks(r: Routine, form: PlanesForm, block: list[Instruction]) -> None:
    """All channels, where a row is one block; their outputs and planes follow each other."""
    r.plain(
        f"ldr r2, [sp, #{_PLANE_START}]",
        f"ldr r3, [sp, #{_COLUMN}]",
        f"str r2, [sp, #{_PLANES}]",
        f"str r3, [sp, #{_OUTPUT}]",
    )
    r.label("1", is_loop=True)
    r.straight([*block, *_store(_REGISTERS[: form.outputs])])
    r.plain("bne 8f")
    r.label("3")
    r.straight(
        [
            load("r0", "sp", _CHANNELS_LEFT),
            load("r2", "sp", _PLANES),
            load("r3", "sp", _PLANE_BYTES),
            load("r12", "sp", _OUTPUT),
            subtract_flags("r0", "r0", 1),
            add("r1", "r1", 4 * form.channel_words),
            add("r2", "r2", "r3"),
            add("r12", "r12", 1),
            store("r0", "sp", _CHANNELS_LEFT),
            store("r2", "sp", _PLANES),
            store("r12", "sp", _OUTPUT),
        ]
    )
    r.plain("bgt 1b")


def _channels(r: Routine, form: PlanesForm, block: list[Instruction]) -> None:
    """All channels, and of each all blocks of a row."""
    accumulators = _REGISTERS[: form.outputs]
    r.label("1")  # another channel
    r.straight(
        [
            load("r0", "sp", _PLANE_START),
            load("r3", "sp", _COLUMN),
            load("r4", "sp", _PIXELS),
            store("r0", "sp", _PLANES),
            store("r3", "sp", _OUTPUT),
            store("r4", "sp", _LEFT),
        ]
    )
    r.label("2", is_loop=True)  # another block of outputs
    if form.tail == PARTIAL:
        r.straight(block)
        r.plain("bne 8f", "3:", f"subs r3, r3, #{form.outputs}", "blt 6f")
        r.straight([*_store(accumulators), *_next_block(form)])
        r.plain("bgt 2b")
    else:
        r.straight([*block, *_store(accumulators)])
        r.plain("bne 8f", "3:")
        r.straight([subtract_flags("r3", "r3", form.outputs), *_next_block(form)])
        r.plain("ble 4f", f"cmp r3, #{form.outputs}", "bge 2b")
        # Once more some outputs that are done.
        r.plain(
            f"rsb r3, r3, #{form.outputs}",
            f"ldr r4, [sp, #{_PLANES}]",
            f"mov r5, #{2 * form.stride}",
            "mls r4, r3, r5, r4",
            "mls r0, r3, r2, r0",
            f"mov r3, #{form.outputs}",
            f"str r4, [sp, #{_PLANES}]",
            f"strd r3, r0, [sp, #{_LEFT}]",
            "b 2b",
        )
    r.label("4")  # the channel is done
    r.plain(
        f"ldr r2, [sp, #{_REPEATS}]",
        f"ldr r3, [sp, #{_COLUMN}]",
        f"ldr r4, [sp, #{_PLANE_START}]",
        f"ldr r5, [sp, #{_PLANE_BYTES}]",
        f"ldr r6, [sp, #{_CHANNELS_LEFT}]",
        f"add r1, r1, #{4 * form.channel_words}",
        "add r3, r3, #1",
        "subs r2, r2, #1",
        "itt eq",
        "addeq r4, r4, r5",
        f"ldreq r2, [sp, #{_MULTIPLIER}]",
        f"str r3, [sp, #{_COLUMN}]",
        f"str r4, [sp, #{_PLANE_START}]",
        "subs r6, r6, #1",
        f"str r2, [sp, #{_REPEATS}]",
        f"str r6, [sp, #{_CHANNELS_LEFT}]",
        "bgt 1b",
    )


def _rows(form: PlanesForm, accumulators: tuple[str, ...]) -> list[Instruction]:
    """All products of a block; r0 becomes the rows' words, r1 is the channel's table."""
    words, outputs = _WORDS[: form.words], form.outputs
    row_bytes = form.spare[0] if form.spare else "r12"
    planes = (*_PLANE, *form.spare[1:])
    scales = 4 * form.rows * form.words
    # The bias stays in the last output's accumulator until all others have begun.
    code = [load("r0", "sp", _PLANES), load(accumulators[-1], "r1", scales)]
    started: set[int] = set()
    loaded = 0
    for row in range(form.rows):
        if row:
            if not form.spare:
                code.append(load("r12", "sp", _ROW_BYTES))
            code.append(add("r0", "r0", row_bytes))
        code += [load(w, "r1", 4 * (row * form.words + n)) for n, w in enumerate(words)]
        for column in range(0, form.reach, 2):
            plane = planes[loaded % len(planes)]
            loaded += 1
            code.append(load(plane, "r0", 2 * column))
            for output in range(outputs):
                product = product_of(form, column - form.odd - form.stride * output)
                if product is None:
                    continue
                name, word = product
                target = accumulators[output]
                addend = target if output in started else accumulators[-1]
                started.add(output)
                code.append(multiply_add(name, target, plane, words[word], addend))
    return code


def product_of(form: PlanesForm, tap: int) -> tuple[str, int] | None:
    """What a word of the plane whose first half meets ``tap`` adds, and the word of taps."""
    bottom, top = 0 <= tap < form.columns, 0 <= tap + 1 < form.columns
    if not bottom and not top:
        return None
    if form.stride % 2 == 0:
        return "smlad", form.place(tap if bottom else tap + 1)[0]
    if bottom and top:
        return "smlad", tap
    word, half = form.place(tap if bottom else tap + 1)
    return f"smla{'b' if bottom else 't'}{'bt'[half]}", word


def _finish(form: PlanesForm, accumulators: tuple[str, ...]) -> list[Instruction]:
    """Requantized; r0, r2 and r3 as the stores need them; the flags tell whether to clamp."""
    scales = 4 * form.rows * form.words
    return [
        load("r2", "r1", scales + 4),
        load("r3", "r1", scales + 8),
        load("r12", "r1", scales + 12),
        *scaled_twice(accumulators, "r2", "r3", "r12", ("lr", "r0")),
        load("r0", "sp", _OUTPUT),
        load("r2", "sp", _PITCH),
        load("r3", "sp", _LEFT),
        load("lr", "sp", _CLAMPS),
        subtract_flags("lr", "lr", 0),
    ]


def scaled_twice(
    accumulators: tuple[str, ...],
    multiplier: str,
    offset: str,
    shift: str,
    temporaries: tuple[str, ...],
) -> list[Instruction]:
    """Requantization of doubled sums, in place: what ``utvm_scale_doubled`` computes."""
    code: list[Instruction] = []
    for number, register in enumerate(accumulators):
        temporary = temporaries[number % len(temporaries)]
        code += [
            add_shifted(temporary, offset, register, "asr #31"),
            multiply_add("smmlar", register, register, multiplier, temporary),
            shift_right(register, register, shift),
            saturate(register, register, 8),
        ]
    return code


def _store(accumulators: tuple[str, ...]) -> list[Instruction]:
    """Every fourth output moves the base, by r2 bytes for each; r0 ends behind the last."""
    code: list[Instruction] = []
    for first in range(0, len(accumulators), 3):
        some = accumulators[first : first + 3]
        places = (0, "r2", "r2, lsl #1")[: len(some)]
        code += [store(a, "r0", place, size="b") for a, place in zip(some, places, strict=True)]
        shift = f"lsl #{len(some) - 1}"
        if len(some) == 3:
            code.append(add("r12", "r2", "r0"))
            code.append(add_shifted("r0", "r12", "r2", "lsl #1"))
        elif len(some) == 2:
            code.append(add_shifted("r0", "r0", "r2", shift))
        else:
            code.append(add("r0", "r0", "r2"))
    return code


def _next_block(form: PlanesForm) -> list[Instruction]:
    return [
        load("r12", "sp", _PLANES),
        add("r12", "r12", 2 * form.stride * form.outputs),
        store("r12", "sp", _PLANES),
        store("r0", "sp", _OUTPUT),
        store("r3", "sp", _LEFT),
    ]
