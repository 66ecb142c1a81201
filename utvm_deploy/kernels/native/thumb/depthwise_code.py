"""The inner block of depthwise convolutions: four pixels of a channel, any window.

A weight is loaded once for four pixels (or three or two, if that fits a row better). Windows of
three columns that are one pixel apart share columns: six columns serve four windows, and the
weights of a row stay in registers. The last tile of a row may compute some pixels again. If one
pixel remains, it is computed alone, and so are all pixels of a row that is shorter than a tile.

Layouts:
    weights  int8  [channel][tap]
    scaling  int32 [channel][bias, multiplier, offset, shift]
    limits   int32 [low, high]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.thumb.shared_blocks import CONDITION, clamp, scale, store_limits
from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3

#: Pixels of a tile at most.
PIXELS = 4
#: The most columns of a window; the products of a row are unrolled.
MOST_COLUMNS = 16
#: Of more taps, the rows are a loop.
MOST_UNROLLED_TAPS = 12
_SLIDING_COLUMNS = 3
PARAMETERS = """
const int8_t *rows, const int8_t *weights, const int32_t *scaling, const int32_t *limits,
int8_t *output, int32_t row_pitch, int32_t column_pitch, int32_t step, int32_t count,
int32_t channels
"""

_SUMS = ("r4", "r5", "r6", "r7")


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    pixel: Slot  # the next one
    output: Slot  # where the next pixel goes
    first_pixel: Slot  # of this channel
    first_output: Slot  # of this channel
    weights: Slot  # of this channel
    scaling: Slot  # of this channel
    next_row: Slot  # bytes from the last tap of a row to the first of the next
    column_pitch: Slot
    step: Slot
    count: Slot
    channels: Slot
    channels_left: Slot
    low: Slot
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    left: Slot  # pixels
    rows_left: Slot


@dataclass(frozen=True)
class DepthwiseTile:
    """A window's rows and columns, and whether windows are as far apart as its columns."""

    rows: int
    columns: int
    is_dense: bool
    pixels: int = PIXELS  # of a tile, 2 or more

    @property
    def slides(self) -> bool:
        """Whether columns are shared between windows."""
        return self.is_dense and self.columns == _SLIDING_COLUMNS

    @property
    def function(self) -> str:
        """The C function's name."""
        slides = "_slide" if self.slides else ""
        pixels = "" if self.pixels == PIXELS else f"_{self.pixels}"
        return f"utvm_thumb_depthwise_{self.rows}x{self.columns}{slides}{pixels}"


#: About the cycles of a tile and of a pixel, apart from their products, and of a product.
_TILE_CYCLES, _PIXEL_CYCLES, _PRODUCT_CYCLES = 80, 14, 2


def best_pixels(count: int, taps: int) -> int:
    """The pixels of a tile that fit rows of ``count`` pixels best."""

    def cost(pixels: int) -> int:
        whole, rest = divmod(count, pixels)
        # One pixel that remains is computed alone, several by a whole tile.
        sizes = [pixels] * whole
        if whole == 0:
            sizes += [1] * rest
        elif rest:
            sizes.append(1 if rest == 1 else pixels)
        each = _PIXEL_CYCLES + _PRODUCT_CYCLES * taps
        return sum(_TILE_CYCLES + n * each for n in sizes)

    return min((4, 3, 2), key=cost)


@code_cache
def depthwise_text(tile: DepthwiseTile) -> str:
    """The C text of the function for a window."""
    return _routine(tile).c_function(
        tile.function, portable_body(tile.rows, tile.columns), CONDITION
    )


def portable_body(rows: int, columns: int) -> str:
    """The body in C of the function for a window."""
    sizes = ("ROWS", str(rows), 2), ("COLUMNS", str(columns), 3)
    return replaced(family_text("thumb", "utvm_thumb_depthwise"), *sizes)


def _routine(tile: DepthwiseTile) -> Assembler:
    a = Assembler(CORTEX_M3, PARAMETERS)
    _begin(a, tile)
    with a.loop("gt"):  # a channel
        a.ldrd("r0", "r1", _Slots.first_pixel)
        a.ldr("r2", _Slots.count)
        a.strd("r0", "r1", _Slots.pixel)
        a.str("r2", _Slots.left)
        a.cmp("r2", tile.pixels)
        done = Label()
        with a.unless("lt") as one_pixel:
            _compute_whole_tiles(a, tile, done, one_pixel)
        with a.loop("gt"):
            _compute_tile(a, tile, 1)
            a.mov("r3", 1)
            _advance(a)
            a.ldr("r2", _Slots.left)
            a.subs("r2", 1)
            a.str("r2", _Slots.left)
        a.place(done)
        a.ldrd("r0", "r1", _Slots.first_pixel)
        a.ldrd("r2", "r3", _Slots.weights)
        a.ldr("r4", _Slots.channels_left)
        a.adds("r0", 1)
        a.adds("r1", 1)
        a.adds("r2", tile.rows * tile.columns)
        a.adds("r3", 16)
        a.strd("r0", "r1", _Slots.first_pixel)
        a.strd("r2", "r3", _Slots.weights)
        a.subs("r4", 1)
        a.str("r4", _Slots.channels_left)
    a.leave()
    return a


def _begin(a: Assembler, tile: DepthwiseTile) -> None:
    """Put the arguments into their slots."""
    # Sliding windows never go from column to column.
    passed = 0 if tile.slides else tile.columns - 1
    a.enter(frame=_Slots)
    a.str("r0", _Slots.first_pixel)
    a.strd("r1", "r2", _Slots.weights)
    store_limits(a, _Slots.low, _Slots.clamps)
    a.add("r0", "sp", a.stack_argument("output").offset)
    a.ldm("r0", ("r0", "r1", "r2", "r3", "r4", "r5"))
    a.str("r0", _Slots.first_output)
    a.mov("r6", passed)
    a.mls("r1", "r2", "r6", "r1")
    a.strd("r1", "r2", _Slots.next_row)
    a.strd("r3", "r4", _Slots.step)
    a.strd("r5", "r5", _Slots.channels)


def _compute_whole_tiles(a: Assembler, tile: DepthwiseTile, done: Label, one_pixel: Label) -> None:
    """Tiles of a row; then to ``done``, or with r2 = 1 on to the tile of one pixel."""
    last = Label()
    with a.loop(""):
        _compute_tile(a, tile, tile.pixels)
        a.ldr("r2", _Slots.left)
        a.mov("r3", tile.pixels)
        a.subs("r2", "r3")
        a.b(done, "eq")
        a.cmp("r2", 1)
        a.b(last, "eq")
        a.cmp("r2", tile.pixels)
        with a.when("lt"):  # the last pixels of the row, some of them again
            a.mov("r3", "r2")
            a.mov("r2", tile.pixels)
        a.str("r2", _Slots.left)
        _advance(a)
    a.place(last)
    a.str("r2", _Slots.left)
    _advance(a)


def _advance(a: Assembler) -> None:
    """Move both pointers by r3 pixels."""
    a.ldrd("r0", "r1", _Slots.pixel)
    a.load(r4=_Slots.step, r5=_Slots.channels)
    a.mla("r0", "r3", "r4", "r0")
    a.mla("r1", "r3", "r5", "r1")
    a.strd("r0", "r1", _Slots.pixel)


def _compute_tile(a: Assembler, tile: DepthwiseTile, pixels: int) -> None:
    """Outputs of that many pixels, to the output."""
    sums = _SUMS[:pixels]
    _start(a, tile, sums)
    if tile.rows * tile.columns <= MOST_UNROLLED_TAPS:
        with a.scheduled():
            for row in range(tile.rows):
                _multiply_row(a, tile, pixels, row * tile.columns)
                if row < tile.rows - 1:
                    a.ldr("r8", _Slots.next_row)
                    a.add("r0", "r0", "r8")
    else:
        a.mov("r8", tile.rows)
        a.str("r8", _Slots.rows_left)
        with a.loop("ne"):
            with a.scheduled():
                _multiply_row(a, tile, pixels, 0)
                a.ldr("r8", _Slots.next_row)
                a.add("r0", "r0", "r8")
                a.add("r1", "r1", tile.columns)
            a.ldr("r8", _Slots.rows_left)
            a.subs("r8", 1)
            a.str("r8", _Slots.rows_left)
    _finish(a, sums)
    _store(a, sums)


def _start(a: Assembler, tile: DepthwiseTile, sums: Sequence[str]) -> None:
    """Registers of a tile: r0 the first pixel, r1 the weights, and the sums at the bias.

    r2 and r3 are the distances of columns and pixels; r12 is three pixels. Where columns are
    shared, r2 is five pixels.
    """
    a.load(r8=_Slots.scaling, r0=_Slots.pixel, r1=_Slots.weights)
    a.ldrd("r2", "r3", _Slots.column_pitch)
    a.ldr("r4", at("r8"))
    a.add("r12", "r3", "r3", "lsl #1")
    if tile.slides and len(sums) > 1:
        a.add("r2", "r3", "r3", "lsl #2")
    for one in sums[1:]:
        a.mov(one, "r4")


def _multiply_row(a: Assembler, tile: DepthwiseTile, pixels: int, first: int) -> None:
    """The products of one row of the window; ``first``: its first weight."""
    if tile.slides and pixels > 1:
        _multiply_sliding_row(a, tile, first)
        return
    offsets: tuple[int | str, ...] = (0, "r3", "r3, lsl #1", "r12")
    xs = ("r9", "r10", "r11", "lr")[:pixels]
    for column in range(tile.columns):
        a.ldrsb("r8", at("r1", first + column))
        for x, offset in zip(xs, offsets, strict=False):
            a.ldrsb(x, at("r0", offset))
        for x, total in zip(xs, _SUMS, strict=False):
            a.mla(total, x, "r8", total)
        if column < tile.columns - 1:
            # One pixel of sliding windows: its columns are windows apart.
            a.add("r0", "r0", "r3" if tile.slides else "r2")
    if tile.slides:
        a.sub("r0", "r0", "r3", "lsl #1")


def _multiply_sliding_row(a: Assembler, tile: DepthwiseTile, first: int) -> None:
    """The products of a row of windows that share columns: two columns more than pixels."""
    columns: tuple[int | str, ...] = (0, "r3", "r3, lsl #1", "r12", "r3, lsl #2", "r2")
    weights = ("r8", "r9", "r10")
    for n, w in enumerate(weights):
        a.ldrsb(w, at("r1", first + n))
    for number, offset in enumerate(columns[: tile.pixels + _SLIDING_COLUMNS - 1]):
        x = ("r11", "lr")[number % 2]
        a.ldrsb(x, at("r0", offset))
        for k, w in enumerate(weights):
            if 0 <= number - k < tile.pixels:
                a.mla(_SUMS[number - k], x, w, _SUMS[number - k])


def _finish(a: Assembler, sums: Sequence[str]) -> None:
    """Requantize the sums to int8 in place."""
    with a.scheduled():
        a.ldr("r8", _Slots.scaling)
        for n, target in enumerate(("r0", "r1", "r2"), 1):
            a.ldr(target, at("r8", 4 * n))
        for one in sums:
            scale(a, one, "r0", "r1", "r2", ("r9", "r10"))
    clamp(a, sums, _Slots.low, _Slots.clamps)


def _store(a: Assembler, sums: Sequence[str]) -> None:
    """Store the outputs, each ``channels`` bytes after the one before."""
    a.load(r0=_Slots.output, r1=_Slots.channels)
    if len(sums) == PIXELS:
        a.add("r2", "r1", "r1", "lsl #1")
    places: tuple[int | str, ...] = (0, "r1", "r1, lsl #1", "r2")
    for one, offset in zip(sums, places, strict=False):
        a.strb(one, at("r0", offset))
