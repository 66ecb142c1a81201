"""The matrix product of convolutions over columns, and what widens the image into them.

All rows of the kernel in one image column are a run of values in scratch, and so are all columns of
a window. The next window begins ``pitch`` bytes later. Tiles have three pixels; the last one of a
row may have one or two.

Layout, for depth k = 4 q + 2 l + f (quad, lane, phase), k = (column, row, channel); the other
tables are those of ``tile.py``:

    columns  int16 [output row][column][row of the kernel][quad][phase][lane], ``SLACK_BYTES``
             after them

Columns of an image of int16 are in its order: k = 2 w + l (word, lane). There, the quads of
``utvm_fill_columns`` are words of two values. Other orders, for one and three channels, are in
``columns_one_channel.py`` and ``columns_three_channels.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dsp.assembly import (
    columns_one_channel,
    columns_three_channels,
    tile,
)
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import function_text, helper
from utvm_deploy.kernels.native.dsp.assembly.tile import CHANNELS, PIXELS, SUMS, TileSlots
from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8, PairedValues, Values

#: Depths up to the first are written out, without a loop. Others take one of the steps.
_WHOLE_DEPTH = 64
_STEPS = (36, 32, 28, 24, 20, 16, 12, 8)
#: The same for code that must be small: the largest depth, and the longest step.
_COMPACT_WHOLE_DEPTH, _COMPACT_STEP = 32, 20
#: By the channels of an image: the C function that fills columns by pairs of rows, and its text.
FILLED_IN_PAIRS: dict[int, tuple[str, Callable[[str], str]]] = {
    columns_one_channel.CHANNELS: (
        columns_one_channel.FILL_FUNCTION,
        columns_one_channel.fill_text,
    ),
    columns_three_channels.CHANNELS: (
        columns_three_channels.FILL_FUNCTION,
        columns_three_channels.fill_text,
    ),
}
#: Bytes from window to window at most: the reach of loads.
LONGEST_PITCH = 1920
_PARAMETERS = """
const int16_t *columns, const int8_t *weights, const int32_t *scaling, const int32_t *limits,
int8_t *output, int32_t pixels, int32_t channels, int32_t depth, int32_t rows, int32_t row_bytes,
int32_t pitch
"""
#: Of a form whose outputs are some of a pixel's channels: bytes from pixel to pixel.
_OUTPUT_PITCH = ", int32_t output_pitch"
_WIDEN_PARAMETERS = """
int16_t *to, const int8_t *from, int32_t pixels, int32_t quads, int32_t from_step,
int32_t to_step
"""
_COPY_PARAMETERS = replaced(
    _WIDEN_PARAMETERS, ("int8_t *from", "int16_t *from", 1), ("quads", "words", 1)
)


class _Slots(TileSlots):
    """What the routine keeps on the stack."""

    rows: Slot
    row_bytes: Slot
    # Where the tile begins in the columns. With ``is_whole``, r0 stays there, and this slot has the
    # bytes of a row's tiles of three pixels; ``left`` has where these tiles end in the columns.
    tile_pixels: Slot
    rows_left: Slot
    row_pixels: Slot  # where the next row begins in the columns
    columns: Slot
    pixels: Slot  # of a row


class ColumnsForm(NamedTuple):
    """What the code depends on."""

    step: int
    is_whole: bool  # the step is the whole depth
    pitch: int  # bytes from window to window
    tail: int  # pixels of the last tile of a row; 0: three
    is_slice: bool = False  # the outputs are some of a pixel's channels
    values: Values = INT8

    @property
    def name(self) -> str:
        """The C function."""
        whole = "whole_" if self.is_whole else ""
        of_some = f"{'_slice' if self.is_slice else ''}{self.values.suffix}"
        return f"utvm_columns_{whole}{self.step}_by_{self.pitch}_{self.tail}{of_some}"


def step_of(depth: int, *, is_compact: bool = False, is_whole: bool = True) -> int:
    """The step for a depth: one that needs the fewest zeros to fill it up, the longest of these.

    ``is_whole``: a small depth is one step, without a loop.
    """
    if is_whole and depth <= (_COMPACT_WHOLE_DEPTH if is_compact else _WHOLE_DEPTH):
        return depth
    steps = [step for step in _STEPS if step <= _COMPACT_STEP or not is_compact]
    return min(steps, key=lambda step: (-depth % step, -step))


@code_cache
def columns_text(core: str, form: ColumnsForm) -> str:
    """The C text of the function, ordered for a core."""
    c_type = element_type(form.values.dtype).c_type
    parameters = replaced(_PARAMETERS, ("int8_t *output", f"{c_type} *output", 1))
    portable = form.values.portable("utvm_columns")
    if form.is_slice:
        parameters += _OUTPUT_PITCH
        portable = replaced(portable, ("p * channels", "p * output_pitch", 1))
    a = Assembler(core, parameters)
    _begin(a, form)
    specials = []  # pixels of a tile, and the label where a special one is stored and goes back to
    with a.loop("gt"):  # two channels
        _begin_channels(a, form)
        with a.loop("gt"):  # a row
            _begin_row(a, form)
            tail, row_done = Label(), Label()
            if form.tail:
                a.b(tail, "lt")
            specials.append((PIXELS, *_multiply(a, form, PIXELS)))
            if form.tail:
                if not form.is_whole:
                    a.cmp("lr", 0)
                    a.b(row_done, "eq")
                a.place(tail)
                specials.append((form.tail, *_multiply(a, form, form.tail)))
            a.place(row_done)
            a.ldr("r4", _Slots.rows_left)
            a.subs("r4", 1)
            a.str("r4", _Slots.rows_left)
        tile.next_channels(a, form.values.size)
    a.leave()
    for pixels, special, stored in specials:
        a.place(special)
        _store_special(a, form, pixels, stored)
    return a.c_function(form.name, portable, CONDITION)


def _begin(a: Assembler, form: ColumnsForm) -> None:
    """Put the arguments into their slots."""
    a.enter(frame=form.values.frame(_Slots))
    a.load(r4=a.stack_argument("output"), r5=a.stack_argument("pixels"))
    a.load(r6=a.stack_argument("channels"), r7=a.stack_argument("depth"))
    a.load(r11=a.stack_argument("rows"), lr=a.stack_argument("row_bytes"))
    a.lsl("r7", "r7", 1)
    form.values.load_limits(a)
    a.store(r7=_Slots.weights_bytes, r2=_Slots.scaling, r4=_Slots.first_output)
    if form.is_slice:
        a.ldr("r8", a.stack_argument("output_pitch"))
    pitch = form.values.load_pitch(a, "r8" if form.is_slice else "r6")
    a.strd("r6", pitch, _Slots.channels_left)
    a.strd("r11", "lr", _Slots.rows)
    a.strd("r0", "r5", _Slots.columns)
    if form.is_whole:
        a.sub("r5", "r5", form.tail)
        a.mov("r4", form.pitch)
        a.mul("r5", "r5", "r4")
        a.str("r5", _Slots.tile_pixels)


def _begin_channels(a: Assembler, form: ColumnsForm) -> None:
    """Fill the slots for the first row of two channels, whose weights r1 points at."""
    a.load(r2=_Slots.weights_bytes, r3=_Slots.first_output, r4=_Slots.columns)
    a.load(r5=_Slots.channels_left, r6=_Slots.clamps, r7=_Slots.rows)
    a.add("r2", "r1", "r2")
    a.sub("r2", "r2", 2 * form.step)
    a.cmp("r5", CHANNELS)
    with a.when("lt"):
        a.mov("r6", 1)
    a.store(r1=_Slots.weights, r2=_Slots.last, r3=_Slots.output, r6=_Slots.special)
    a.strd("r7", "r4", _Slots.rows_left)
    form.values.begin_channels(a, form.step)


def _begin_row(a: Assembler, form: ColumnsForm) -> None:
    """Fill the slots for the first tile of a row; flags: ``lt`` if it is smaller than others."""
    a.load(r0=_Slots.row_pixels, r4=_Slots.pixels, r5=_Slots.row_bytes)
    a.add("r5", "r5", "r0")
    if form.is_whole:
        a.ldr("r6", _Slots.tile_pixels)
        a.add("r6", "r6", "r0")
        a.store(r5=_Slots.row_pixels, r6=_Slots.left)
    else:
        a.store(r0=_Slots.tile_pixels, r5=_Slots.row_pixels, r4=_Slots.left)
    a.cmp("r4", PIXELS)


def _multiply(a: Assembler, form: ColumnsForm, pixels: int) -> tuple[Label, Label]:
    """Do all tiles of three pixels, or the one with fewer.

    Unless a step is the whole depth, lr becomes the pixels that are left.
    Gives the label that special tiles go to, and the label that they come back to.
    """

    def place(phase: int, pixel: int) -> int:
        return 4 * phase + pixel * form.pitch

    special, stored = Label(), Label()
    with a.scheduled():
        form.values.start(a, pixels)
    next_tile = a.here()
    if form.is_whole:
        with a.scheduled():
            tile.load_pixels(a, pixels, place)
            tile.step(a, pixels, form.step, place, 0, is_whole=True)
            form.values.finish(a, pixels)
    else:
        with a.scheduled():
            tile.load_pixels(a, pixels, place)
        with a.loop("ne", aligned=True) as again, a.scheduled(is_loop=True):
            tile.step(a, pixels, form.step, place, 2 * form.step, is_whole=False)
        form.values.next_segment(a, pixels, form.step, again)
        with a.scheduled():
            form.values.finish(a, pixels)
    a.b(special, "ne")
    with a.scheduled():
        _store(a, form, pixels)
        _go_to_next_tile(a, form, pixels)
    a.place(stored)
    if pixels == PIXELS:
        a.b(next_tile, "lt" if form.is_whole else "ge")
    return special, stored


def _go_to_next_tile(a: Assembler, form: ColumnsForm, pixels: int) -> None:
    """Start the tile whose output is at r12.

    Flags: ``ge`` if it is one of three pixels; with ``is_whole``, ``lt``.
    """
    a.str("r12", _Slots.output)
    if pixels < PIXELS:
        return
    if form.is_whole:
        a.ldr("lr", _Slots.left)
        a.add("r0", "r0", 2 * form.pitch)
        a.add("r0", "r0", form.pitch)
        a.cmp("r0", "lr")
        form.values.start(a, pixels)
        return
    a.load(r0=_Slots.tile_pixels, lr=_Slots.left)
    a.add("r0", "r0", 2 * form.pitch)
    a.add("r0", "r0", form.pitch)
    a.sub("lr", "lr", pixels)
    a.store(r0=_Slots.tile_pixels, lr=_Slots.left)
    a.cmp("lr", PIXELS)
    form.values.start(a, pixels)


def _store_special(a: Assembler, form: ColumnsForm, pixels: int, stored: Label) -> None:
    """Store a tile that is clamped, or has one channel."""
    form.values.clamp(a, pixels)
    with a.scheduled():
        a.load(r10=_Slots.output, r11=_Slots.output_pitch, r2=_Slots.channels_left)
        a.cmp("r2", CHANNELS)
    with a.unless("lt"):
        with a.scheduled():
            _store(a, form, pixels)
            _go_to_next_tile(a, form, pixels)
        a.b(stored)
    for low, _ in SUMS[:pixels]:
        form.values.store_first(a, low, at("r10"))
        a.add("r10", "r10", "r11")
    a.mov("r12", "r10")
    with a.scheduled():
        _go_to_next_tile(a, form, pixels)
    a.b(stored)


def _store(a: Assembler, form: ColumnsForm, pixels: int) -> None:
    """Store two channels of each pixel; r12 ends after the last."""
    low = [pair[0] for pair in SUMS[:pixels]]
    form.values.store(a, low[0], at("r10"))
    if pixels == 1:
        a.add("r12", "r10", "r11")
        return
    form.values.store(a, low[1], at("r10", "r11"))
    a.add("r12", "r10", "r11", "lsl #1")
    if pixels == PIXELS:
        form.values.store(a, low[2], at("r12"))
        a.add("r12", "r12", "r11")


def fill_function(values: Values) -> str:
    """The C function that fills columns."""
    if isinstance(values, PairedValues):
        return FILLED_IN_PAIRS[values.channels][0]
    return "utvm_fill_columns" if values.size == 1 else "utvm_wide_fill_columns"


@code_cache
def fill_text(core: str, values: Values) -> str:
    """The C text of ``fill_function`` and what it calls, ordered for a core."""
    if isinstance(values, PairedValues):
        return FILLED_IN_PAIRS[values.channels][1](core)
    if values.size > 1:
        return f"{_copy_text(core)}\n{_wide_fill_text()}"
    a = Assembler(core, _WIDEN_PARAMETERS)
    a.enter()
    a.load(r10=a.stack_argument("from_step"), r11=a.stack_argument("to_step"))
    a.cmp("r3", 1)
    one_quad = Label()
    a.b(one_quad, "eq")
    with a.loop("gt"):  # a pixel
        a.mov("r8", "r0")
        a.mov("r9", "r1")
        a.subs("r12", "r3", 4)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            tile.widen(a, [("r4", "r5"), ("r6", "r7")] * 2, "r9", "r8", "r12", phase=4)
        a.adds("r12", 4)
        with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            tile.widen(a, [("r4", "r5")], "r9", "r8", "r12", phase=4)
        a.add("r1", "r1", "r10")
        a.add("r0", "r0", "r11")
        a.subs("r2", 1)
    a.leave()
    a.place(one_quad, aligned=True)  # pixels of one quad
    with a.scheduled(is_loop=True):
        a.ldr("r4", at("r1"))
        a.add("r1", "r1", "r10")
        a.sxtb16("r5", "r4", "ror #8")
        a.sxtb16("r4", "r4")
        a.str("r4", at("r0"))
        a.str("r5", at("r0", 4))
        a.add("r0", "r0", "r11")
        a.subs("r2", "r2", 1)
    a.b(one_quad, "gt")
    a.leave()
    return "\n".join([function_text("utvm_widen_columns", a), helper("utvm_fill_columns")])


def _wide_fill_text() -> str:
    """The C of ``utvm_fill_columns`` for images of int16, which are copied by words."""
    return replaced(
        helper("utvm_fill_columns"),
        ("const int8_t", "const int16_t", 7),
        ("(int8_t)border", "(int16_t)border", 1),
        ("utvm_widen_columns", "utvm_copy_columns", 2),
        ("(value & ~3) + (value & 1) * 2 + (value >> 1 & 1)", "value", 1),
        ("4 * window.quads", "2 * window.quads", 1),
        ("window.quads, step, 2", "window.quads, 2 * step, 2", 1),
        ("from bytes that", "from values that", 1),
        ("utvm_", "utvm_wide_", 14),
    )


def _copy_text(core: str) -> str:
    """The C of ``utvm_wide_copy_columns``, ordered for a core."""
    a = Assembler(core, _COPY_PARAMETERS)
    a.enter()
    a.load(r10=a.stack_argument("from_step"), r11=a.stack_argument("to_step"))
    with a.loop("gt"):  # a pixel
        a.mov("r8", "r0")
        a.mov("r9", "r1")
        a.subs("r12", "r3", 8)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            _copy_words(a, 8)
            a.subs("r12", "r12", 8)
        a.adds("r12", "r12", 8 - 2)
        with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
            _copy_words(a, 2)
            a.subs("r12", "r12", 2)
        a.adds("r12", "r12", 2)
        with a.unless("eq"):
            a.ldr("r4", at("r9"))
            a.str("r4", at("r8"))
        a.add("r1", "r1", "r10")
        a.add("r0", "r0", "r11")
        a.subs("r2", 1)
    a.leave()
    return function_text("utvm_wide_copy_columns", a)


def _copy_words(a: Assembler, count: int) -> None:
    """Copy words from r9 to r8, which both move."""
    registers = ("r4", "r5", "r6", "r7")
    for number in range(count):
        a.ldr(registers[number % 4], at("r9", 4 * number))
        a.str(registers[number % 4], at("r8", 4 * number))
    a.add("r8", "r8", 4 * count)
    a.add("r9", "r9", 4 * count)
