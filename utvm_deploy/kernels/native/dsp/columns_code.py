"""The product of convolutions over columns of rows that windows share.

What the windows of a row see lies in scratch as int16, column by column of the image: all rows of
the kernel in one column, then the next. So a window is one run of values, the next window begins
``pitch`` later, and an image's row is widened once for each of the kernel's rows and not for each
of its taps. Tiles have three pixels, and the one that ends a row one or two.

Layouts, for depth k = 4 q + 2 l + f (quad, lane, phase), k = (column, row, channel):
    columns  int16 [output row][column][row of the kernel][quad][phase][lane]
    weights, scaling as in ``gemm.py``
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from utvm_deploy.cores.timing import Timing
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    add_shifted,
    compare,
    extend16,
    load,
    load_next,
    store,
    subtract,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine, naked_function
from utvm_deploy.kernels.native.dsp import tile
from utvm_deploy.kernels.native.dsp.code import c_text, helper
from utvm_deploy.kernels.native.dsp.gemm import SCALING_BYTES
from utvm_deploy.kernels.native.dsp.tile import CHANNELS

PIXELS = 3
#: Depths up to this are written out whole, without a loop.
WHOLE_DEPTH = 64
#: Steps of the inner loop, the longest first.
STEPS = (36, 32, 28, 24, 20, 16, 12, 8)
#: The same of code that is to take few bytes.
COMPACT_WHOLE_DEPTH, COMPACT_STEP = 32, 20
#: Bytes behind the columns that are read and never used, beside those that fill up the depth.
SLACK_BYTES = 16
#: How far apart the windows of two pixels may be: what loads reach.
LONGEST_PITCH = 1920
PARAMETERS = (
    "const int16_t *columns",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t pixels",
    "int32_t channels",
    "int32_t depth",
    "int32_t rows",
    "int32_t row_bytes",
    "int32_t pitch",
)
#: Of a form whose outputs are some of a pixel's channels: bytes from pixel to pixel.
OUTPUT_PITCH = "int32_t output_pitch"
WIDEN = "utvm_widen_columns"
WIDEN_PARAMETERS = (
    "int16_t *to",
    "const int8_t *from",
    "int32_t pixels",
    "int32_t quads",
    "int32_t from_step",
    "int32_t to_step",
)

# Slots on the stack, behind the tile's.
_ROWS = tile.OTHER_SLOTS
_ROW_BYTES = _ROWS + 4
_BASE = _ROW_BYTES + 4  # the tile's first pixel
_ROWS_LEFT = _BASE + 4
_ROW = _ROWS_LEFT + 4  # the row's first pixel
_COLUMNS = _ROW + 4
_PIXELS = _COLUMNS + 4  # of a row
_FRAME_BYTES = _PIXELS + 4
_SAVED_BYTES = 36


class ColumnsForm(NamedTuple):
    """What the code depends on."""

    depth: int  # 0: any that is a multiple of the step
    step: int
    pitch: int  # bytes from window to window
    tail: int  # pixels of a row's last tile: this, or three
    is_slice: bool = False  # the outputs are some of a pixel's channels

    @property
    def name(self) -> str:
        """The C function."""
        whole = "whole_" if self.depth else ""
        of_some = "_slice" if self.is_slice else ""
        return f"utvm_columns_{whole}{self.step}_by_{self.pitch}_{self.tail}{of_some}"


def step_of(depth: int, *, is_compact: bool = False) -> int:
    """The step for a depth: what fills up least, and then the longest."""
    if depth <= (COMPACT_WHOLE_DEPTH if is_compact else WHOLE_DEPTH):
        return depth
    steps = [step for step in STEPS if step <= COMPACT_STEP or not is_compact]
    return min(steps, key=lambda step: (padded(depth, step), -step))


def padded(depth: int, step: int) -> int:
    """The depth that the inner loop does."""
    return -(-depth // step) * step


def form_of(
    depth: int, step: int, pitch: int, width: int, *, is_slice: bool = False
) -> ColumnsForm:
    """The form for rows of so many pixels."""
    return ColumnsForm(depth if step == depth else 0, step, pitch, width % PIXELS, is_slice)


@lru_cache(maxsize=32)
def columns_text(core: str, form: ColumnsForm) -> str:
    """The C text of the function, ordered for a core."""
    parameters, portable = list(PARAMETERS), helper("utvm_columns")
    if form.is_slice:
        parameters.append(OUTPUT_PITCH)
        portable = replaced(portable, ("p * channels", "p * output_pitch", 1))
    lines = _routine(timing_of(core), form).lines
    return naked_function(form.name, parameters, lines, portable, CONDITION)


@lru_cache(maxsize=8)
def fill_text(core: str) -> str:
    """The C text of ``utvm_fill_columns`` and what it calls, ordered for a core."""
    widen = c_text(WIDEN, WIDEN_PARAMETERS, _widen_routine(timing_of(core)))
    return "\n".join([widen, helper("utvm_fill_columns")])


def _routine(timing: Timing, form: ColumnsForm) -> Routine:
    r = Routine(timing)
    arguments = _FRAME_BYTES + _SAVED_BYTES
    names = ("r4", "r5", "r6", "r7", "r11", "lr")
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        *(f"ldr {name}, [sp, #{arguments + 4 * n}]" for n, name in enumerate(names)),
        "lsl r7, r7, #1",  # what two channels of this depth take
        *tile.limits_prologue("r3"),
        f"str r7, [sp, #{tile.PANEL_BYTES}]",
        f"str r2, [sp, #{tile.SCALING}]",
        f"str r4, [sp, #{tile.COLUMN}]",
        *([f"ldr r8, [sp, #{arguments + 4 * 7}]"] if form.is_slice else []),
        f"strd r6, {'r8' if form.is_slice else 'r6'}, [sp, #{tile.CHANNELS_LEFT}]",
        f"strd r11, lr, [sp, #{_ROWS}]",
        f"strd r0, r5, [sp, #{_COLUMNS}]",
    )
    r.label("1")  # two more channels
    _begin_channels(r, form)
    r.label("2")  # another row
    r.plain(
        f"ldr r0, [sp, #{_ROW}]",
        f"ldr r4, [sp, #{_PIXELS}]",
        f"ldr r5, [sp, #{_ROW_BYTES}]",
        "add r5, r5, r0",
        f"str r0, [sp, #{_BASE}]",
        f"str r5, [sp, #{_ROW}]",
        f"str r4, [sp, #{tile.LEFT}]",
        f"cmp r4, #{PIXELS}",
    )
    if form.tail:
        r.plain("blt 20f")
    r.straight(tile.start(PIXELS))
    _tiles(r, form, PIXELS, 10)
    if form.tail:
        r.plain("cmp lr, #0", "beq 30f")
        r.label("20")
        r.straight(tile.start(form.tail))
        _tiles(r, form, form.tail, 21)
    r.label("30")
    r.plain(
        f"ldr r4, [sp, #{_ROWS_LEFT}]",
        "subs r4, #1",
        f"str r4, [sp, #{_ROWS_LEFT}]",
        "bgt 2b",
        *tile.next_channels(SCALING_BYTES, _FRAME_BYTES),
    )
    _special(r, form, PIXELS, 10)
    if form.tail:
        _special(r, form, form.tail, 21)
    return r


def _begin_channels(r: Routine, form: ColumnsForm) -> None:
    """What the first row of a pair of channels finds in the slots."""
    r.plain(
        f"ldr r2, [sp, #{tile.PANEL_BYTES}]",
        f"ldr r3, [sp, #{tile.COLUMN}]",
        f"ldr r4, [sp, #{_COLUMNS}]",
        f"ldr r5, [sp, #{tile.CHANNELS_LEFT}]",
        f"ldr r6, [sp, #{tile.CLAMPS}]",
        f"ldr r7, [sp, #{_ROWS}]",
        "add r2, r1, r2",
        f"sub r2, r2, #{2 * form.step}",
        f"cmp r5, #{CHANNELS}",
        "it lt",
        "movlt r6, #1",
        f"str r1, [sp, #{tile.WEIGHTS}]",
        f"str r2, [sp, #{tile.LAST}]",
        f"str r3, [sp, #{tile.OUTPUT}]",
        f"str r6, [sp, #{tile.SPECIAL}]",
        f"strd r7, r4, [sp, #{_ROWS_LEFT}]",
    )


def _tiles(r: Routine, form: ColumnsForm, pixels: int, label: int) -> None:
    """One tile, or as many of three pixels as fit; lr becomes the pixels that are left."""

    def place(phase: int, pixel: int) -> int:
        return 4 * phase + pixel * form.pitch

    is_many = pixels == PIXELS
    r.label(f"{label}")
    r.straight(tile.first_pixels(pixels, place))
    if form.depth:
        code = tile.loop(pixels, form.step, place, 0, is_whole=True)
        r.straight([*code, *tile.finish(pixels)])
    else:
        r.label(f"{label + 1}", is_loop=True)
        code = tile.loop(pixels, form.step, place, 2 * form.step, is_whole=False)
        r.straight(code, is_loop=True)
        r.plain(f"bne {label + 1}b")
        r.straight(tile.finish(pixels))
    r.plain(f"bne {label + 2}f")
    r.straight([*_store(pixels), *_next(form, pixels, is_many)])
    r.label(f"{label + 3}")
    if is_many:
        r.plain(f"bge {label}b")


def _next(form: ColumnsForm, pixels: int, is_many: bool) -> list[Instruction]:
    """r12 is where the next tile goes; the flags tell whether it is one of three pixels."""
    code = [store("r12", "sp", tile.OUTPUT)]
    if not is_many:
        return code
    return [
        *code,
        load("r0", "sp", _BASE),
        load("lr", "sp", tile.LEFT),
        add("r0", "r0", 2 * form.pitch),
        add("r0", "r0", form.pitch),
        subtract("lr", "lr", pixels),
        store("r0", "sp", _BASE),
        store("lr", "sp", tile.LEFT),
        compare("lr", PIXELS),
        *tile.start(pixels),
    ]


def _special(r: Routine, form: ColumnsForm, pixels: int, label: int) -> None:
    """A tile that is clamped, or has one channel."""
    is_many = pixels == PIXELS
    r.label(f"{label + 2}")
    r.plain(f"ldr r2, [sp, #{tile.CLAMPS}]", "cmp r2, #0", f"beq {label + 4}f")
    r.straight(tile.clamp(pixels))
    r.label(f"{label + 4}")
    r.straight(
        [
            load("r10", "sp", tile.OUTPUT),
            load("r11", "sp", tile.CHANNELS_SLOT),
            load("r2", "sp", tile.CHANNELS_LEFT),
            compare("r2", CHANNELS),
        ]
    )
    r.plain(f"blt {label + 5}f")
    r.straight([*_store(pixels), *_next(form, pixels, is_many)])
    r.plain(f"b {label + 3}b")
    r.label(f"{label + 5}")
    for low, _ in tile.ACCUMULATORS[:pixels]:
        r.plain(f"strb {low}, [r10]", "add r10, r10, r11")
    r.plain("mov r12, r10")
    r.straight(_next(form, pixels, is_many))
    r.plain(f"b {label + 3}b")


def _store(pixels: int) -> list[Instruction]:
    """Two channels of each pixel; r12 ends behind the last."""
    low = [pair[0] for pair in tile.ACCUMULATORS[:pixels]]
    code = [store(low[0], "r10", size="h")]
    if pixels > 1:
        code.append(store(low[1], "r10", "r11", size="h"))
    if pixels == 1:
        return [*code, add("r12", "r10", "r11")]
    code.append(add_shifted("r12", "r10", "r11", "lsl #1"))
    if pixels == PIXELS:
        code += [store(low[2], "r12", size="h"), add("r12", "r12", "r11")]
    return code


def _widen_routine(timing: Timing) -> Routine:
    """Quads of a pixel side by side; then the next pixel, both sides by steps of their own."""
    r = Routine(timing)
    r.plain("push {r4-r11, lr}", "ldr r10, [sp, #36]", "ldr r11, [sp, #40]", "cmp r3, #1", "beq 7f")
    r.label("1")  # a pixel
    r.plain("mov r8, r0", "mov r9, r1", "subs r12, r3, #4", "blt 3f")
    r.label("2", is_loop=True)
    code: list[Instruction] = []
    for quad in range(4):
        code += _quad(("r4", "r6")[quad % 2], ("r5", "r7")[quad % 2], 8 * quad)
    r.straight([*code, add("r8", "r8", 32), subtract_flags("r12", "r12", 4)], is_loop=True)
    r.plain("bge 2b")
    r.label("3")
    r.plain("adds r12, #4", "beq 5f")
    r.label("4", is_loop=True)
    one = [*_quad("r4", "r5", 0), add("r8", "r8", 8), subtract_flags("r12", "r12", 1)]
    r.straight(one, is_loop=True)
    r.plain("bne 4b")
    r.label("5")
    r.plain("add r1, r1, r10", "add r0, r0, r11", "subs r2, #1", "bgt 1b", "pop {r4-r11, pc}")
    r.label("7", is_loop=True)  # pixels of one quad
    code = [
        load("r4", "r1"),
        add("r1", "r1", "r10"),
        extend16("r5", "r4", 8),
        extend16("r4", "r4"),
        store("r4", "r0"),
        store("r5", "r0", 4),
        add("r0", "r0", "r11"),
        subtract_flags("r2", "r2", 1),
    ]
    r.straight(code, is_loop=True)
    r.plain("bgt 7b", "pop {r4-r11, pc}")
    return r


def _quad(low: str, high: str, offset: int) -> list[Instruction]:
    return [
        load_next(low, "r9", 4),
        extend16(high, low, 8),
        extend16(low, low),
        store(low, "r8", offset),
        store(high, "r8", offset + 4),
    ]
