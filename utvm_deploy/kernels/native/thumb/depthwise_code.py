"""The inner block of depthwise convolutions: four pixels of a channel, any window.

A weight is loaded once for four pixels (three or two where that fits a row better). Where windows
of three columns lie one pixel apart, the pixels are, too: six columns serve four windows of three,
with the weights of a row in registers. What is left of a row is done with the last pixels again;
one pixel is done alone, as are all of shorter rows.

Layouts:
    weights  int8  [channel][tap]
    scaling  int32 [channel][bias, multiplier, offset, shift]
    limits   int32 [low, high]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from utvm_deploy.cores.timing_m3 import CORTEX_M3
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.isa.instructions import Instruction, add, load, multiply_add
from utvm_deploy.kernels.isa.routine import Routine, naked_function
from utvm_deploy.kernels.native.thumb.code import CONDITION, clamped, limits_stored, scaled

#: Pixels of a tile at most.
PIXELS = 4
#: Columns whose products are written out at most.
MOST_COLUMNS = 16
_MOST_UNROLLED_TAPS = 12
_SLIDING_COLUMNS = 3
PARAMETERS = (
    "const int8_t *rows",
    "const int8_t *weights",
    "const int32_t *scaling",
    "const int32_t *limits",
    "int8_t *output",
    "int32_t row_pitch",
    "int32_t column_pitch",
    "int32_t step",
    "int32_t count",
    "int32_t channels",
)

_SUMS = ("r4", "r5", "r6", "r7")
# Slots on the stack: the next pixel, and where it goes; the first one of this channel, and where
# that goes; its weights and scaling; the bytes from a row's last tap to the next row's first; what
# was given; limits, and whether they are narrower than int8; pixels and rows that are left.
(_X, _OUTPUT, _FIRST, _COLUMN, _WEIGHTS, _SCALING, _NEXT_ROW, _COLUMN_PITCH, _STEP, _COUNT,
 _CHANNELS, _CHANNELS_LEFT, _LOW, _HIGH, _CLAMPS, _LEFT, _ROWS_LEFT) = range(0, 68, 4)  # fmt: skip
_FRAME_BYTES = 68
_SAVED_BYTES = 36


@dataclass(frozen=True)
class Taps:
    """A window's rows and columns, and whether windows are as far apart as columns."""

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


#: About what a tile and a pixel of it take beside the products, in cycles, and a product.
_TILE_CYCLES, _PIXEL_CYCLES, _PRODUCT_CYCLES = 80, 14, 2


def best_pixels(count: int, taps: int) -> int:
    """The pixels of a tile that fit rows of ``count`` pixels best."""

    def cost(pixels: int) -> int:
        whole, rest = divmod(count, pixels)
        # One pixel that is left is done alone; more, with a whole tile again.
        sizes = [pixels] * whole
        if whole == 0:
            sizes += [1] * rest
        elif rest:
            sizes.append(1 if rest == 1 else pixels)
        each = _PIXEL_CYCLES + _PRODUCT_CYCLES * taps
        return sum(_TILE_CYCLES + n * each for n in sizes)

    return min((4, 3, 2), key=cost)


@lru_cache(maxsize=16)
def depthwise_text(taps: Taps) -> str:
    """The C text of the function for a window."""
    sizes = ("ROWS", str(taps.rows), 2), ("COLUMNS", str(taps.columns), 3)
    body = replaced(family_text("thumb", "utvm_thumb_depthwise"), *sizes)
    return naked_function(taps.function, PARAMETERS, _Writer(taps).lines(), body, CONDITION)


class _Writer:
    """Writes the function for a window."""

    def __init__(self, taps: Taps) -> None:
        self.taps = taps
        self.routine = Routine(CORTEX_M3)

    def lines(self) -> list[str]:
        r, taps = self.routine, self.taps
        self._arguments()
        r.label("1")  # another channel
        r.plain(
            f"ldrd r0, r1, [sp, #{_FIRST}]",
            f"ldr r2, [sp, #{_COUNT}]",
            f"strd r0, r1, [sp, #{_X}]",
            f"str r2, [sp, #{_LEFT}]",
            f"cmp r2, #{taps.pixels}",
            "blt 3f",
        )
        self._pixels()
        r.label("4")
        r.plain(
            f"ldrd r0, r1, [sp, #{_FIRST}]",
            f"ldrd r2, r3, [sp, #{_WEIGHTS}]",
            f"ldr r4, [sp, #{_CHANNELS_LEFT}]",
            "adds r0, #1",
            "adds r1, #1",
            f"adds r2, #{taps.rows * taps.columns}",
            "adds r3, #16",
            f"strd r0, r1, [sp, #{_FIRST}]",
            f"strd r2, r3, [sp, #{_WEIGHTS}]",
            "subs r4, #1",
            f"str r4, [sp, #{_CHANNELS_LEFT}]",
            "bgt 1b",
            f"add sp, #{_FRAME_BYTES}",
            "pop {r4-r11, pc}",
        )
        return r.lines

    def _arguments(self) -> None:
        """To their slots."""
        r, taps = self.routine, self.taps
        arguments = _FRAME_BYTES + _SAVED_BYTES
        # Sliding windows never go from column to column.
        passed = 0 if taps.slides else taps.columns - 1
        r.plain(
            "push {r4-r11, lr}",
            f"sub sp, #{_FRAME_BYTES}",
            f"str r0, [sp, #{_FIRST}]",
            f"strd r1, r2, [sp, #{_WEIGHTS}]",
            *limits_stored(_LOW, _CLAMPS),
            f"add r0, sp, #{arguments}",
            "ldm r0, {r0, r1, r2, r3, r4, r5}",
            f"str r0, [sp, #{_COLUMN}]",
            f"mov r6, #{passed}",
            "mls r1, r2, r6, r1",
            f"strd r1, r2, [sp, #{_NEXT_ROW}]",
            f"strd r3, r4, [sp, #{_STEP}]",
            f"strd r5, r5, [sp, #{_CHANNELS}]",
        )

    def _pixels(self) -> None:
        """All of a row for a channel; shorter rows than a tile begin at label 3."""
        r, taps = self.routine, self.taps
        r.label("2")  # four more pixels
        self._tile(taps.pixels, 10)
        r.plain(
            f"ldr r2, [sp, #{_LEFT}]",
            f"mov r3, #{taps.pixels}",
            "subs r2, r3",
            "beq 4f",
            "cmp r2, #1",
            "beq 5f",
            f"cmp r2, #{taps.pixels}",
            "itt lt",  # the last four again
            "movlt r3, r2",
            f"movlt r2, #{taps.pixels}",
            f"str r2, [sp, #{_LEFT}]",
        )
        self._advance()
        r.plain("b 2b")
        r.label("5")
        r.plain(f"str r2, [sp, #{_LEFT}]")
        self._advance()
        r.label("3")  # one more pixel
        self._tile(1, 20)
        r.plain("mov r3, #1")
        self._advance()
        r.plain(f"ldr r2, [sp, #{_LEFT}]", "subs r2, #1", f"str r2, [sp, #{_LEFT}]", "bgt 3b")

    def _advance(self) -> None:
        """By r3 pixels."""
        self.routine.plain(
            f"ldrd r0, r1, [sp, #{_X}]",
            f"ldr r4, [sp, #{_STEP}]",
            f"ldr r5, [sp, #{_CHANNELS}]",
            "mla r0, r3, r4, r0",
            "mla r1, r3, r5, r1",
            f"strd r0, r1, [sp, #{_X}]",
        )

    def _tile(self, pixels: int, label: int) -> None:
        r, taps = self.routine, self.taps
        sums = _SUMS[:pixels]
        is_unrolled = taps.rows * taps.columns <= _MOST_UNROLLED_TAPS
        r.plain(
            f"ldr r8, [sp, #{_SCALING}]",
            f"ldr r0, [sp, #{_X}]",
            f"ldr r1, [sp, #{_WEIGHTS}]",
            f"ldrd r2, r3, [sp, #{_COLUMN_PITCH}]",
            "ldr r4, [r8]",
            "add r12, r3, r3, lsl #1",
            *(["add r2, r3, r3, lsl #2"] if taps.slides and pixels > 1 else []),
            *(f"mov {one}, r4" for one in sums[1:]),
        )
        code: list[Instruction] = []
        if is_unrolled:
            for row in range(taps.rows):
                code += self._row(pixels, row * taps.columns)
                if row < taps.rows - 1:
                    code += [load("r8", "sp", _NEXT_ROW), add("r0", "r0", "r8")]
            r.straight(code)
        else:
            r.plain(f"mov r8, #{taps.rows}", f"str r8, [sp, #{_ROWS_LEFT}]")
            r.label(f"{label}")
            code = self._row(pixels, 0)
            code += [
                load("r8", "sp", _NEXT_ROW),
                add("r0", "r0", "r8"),
                add("r1", "r1", taps.columns),
            ]
            r.straight(code)
            r.plain(
                f"ldr r8, [sp, #{_ROWS_LEFT}]",
                "subs r8, #1",
                f"str r8, [sp, #{_ROWS_LEFT}]",
                f"bne {label}b",
            )
        self._finish(sums, label)

    def _row(self, pixels: int, first: int) -> list[Instruction]:
        """The products of one row of the window; ``first``: its first weight."""
        if self.taps.slides and pixels > 1:
            return self._sliding_row(first)
        code: list[Instruction] = []
        offsets: tuple[int | str, ...] = (0, "r3", "r3, lsl #1", "r12")
        for column in range(self.taps.columns):
            code.append(load("r8", "r1", first + column, size="sb"))
            for p, x in enumerate(("r9", "r10", "r11", "lr")[:pixels]):
                code.append(load(x, "r0", offsets[p], size="sb"))
            for p, x in enumerate(("r9", "r10", "r11", "lr")[:pixels]):
                code.append(multiply_add("mla", _SUMS[p], x, "r8", _SUMS[p]))
            if column < self.taps.columns - 1:
                # One pixel of sliding windows: its columns are windows apart.
                code.append(add("r0", "r0", "r3" if self.taps.slides else "r2"))
        if self.taps.slides:
            code.append(
                Instruction(
                    "sub r0, r0, r3, lsl #1",
                    add("r0", "r0", "r3").kind,
                    first=("r0",),
                    second=("r3",),
                    writes=("r0",),
                )
            )
        return code

    def _sliding_row(self, first: int) -> list[Instruction]:
        """Two columns more than windows of three."""
        columns: tuple[int | str, ...] = (0, "r3", "r3, lsl #1", "r12", "r3, lsl #2", "r2")
        weights = ("r8", "r9", "r10")
        code = [load(w, "r1", first + n, size="sb") for n, w in enumerate(weights)]
        pixels = self.taps.pixels
        for number, offset in enumerate(columns[: pixels + _SLIDING_COLUMNS - 1]):
            x = ("r11", "lr")[number % 2]
            code.append(load(x, "r0", offset, size="sb"))
            code += [
                multiply_add("mla", _SUMS[number - k], x, w, _SUMS[number - k])
                for k, w in enumerate(weights)
                if 0 <= number - k < pixels
            ]
        return code

    def _finish(self, sums: tuple[str, ...], label: int) -> None:
        r = self.routine
        code = [load("r8", "sp", _SCALING)]
        code += [load(t, "r8", 4 * n + 4) for n, t in enumerate(("r0", "r1", "r2"))]
        for register in sums:
            code += scaled(register, "r0", "r1", "r2", "r9", "r10")
        r.straight(code)
        r.plain(*clamped(sums, _LOW, _CLAMPS, f"{label + 1}"))
        r.plain(f"ldr r0, [sp, #{_OUTPUT}]", f"ldr r1, [sp, #{_CHANNELS}]")
        places = ("[r0]", "[r0, r1]", "[r0, r1, lsl #1]", "[r0, r2]")
        if len(sums) == PIXELS:
            r.plain("add r2, r1, r1, lsl #1")
        r.plain(*(f"strb {one}, {at}" for one, at in zip(sums, places, strict=False)))
