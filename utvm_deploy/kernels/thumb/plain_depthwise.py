"""Depthwise rows for cores with Thumb alone (Cortex-M0+): two pixels of a channel.

A weight serves both: pointers to the window and to the weights, an offset of zero and that to the
other pixel (LDRSB wants one), a byte of each and two sums are the eight registers that there are.
That is the assembly, called for every two outputs; the rest is C.
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.kernels.micro.routine import naked_function
from utvm_deploy.kernels.micro.source import family_text
from utvm_deploy.kernels.rows import Steps
from utvm_deploy.kernels.thumb.depthwise import ThumbRowProduct
from utvm_deploy.kernels.thumb.depthwise_code import Taps
from utvm_deploy.kernels.thumb.plain import CONDITION
from utvm_deploy.kernels.window import Window

PIXELS = 2
TAPS_PARAMETERS = (
    "const int8_t *pixel",
    "const int8_t *weights",
    "const int32_t *geometry",
    "int32_t *sums",
)
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
    "int32_t window_rows",
    "int32_t window_columns",
)


@dataclass(frozen=True)
class PlainRowProduct(ThumbRowProduct):
    """The micro-kernel of this module."""

    @property
    def label(self) -> str:
        return "plain"

    @property
    def function(self) -> str:
        return "utvm_plain_depthwise"

    @property
    def why(self) -> str:
        return f"Thumb assembly, {PIXELS} pixels of a channel in registers"

    def texts(self) -> tuple[str, ...]:
        taps = family_text("thumb", "utvm_plain_taps")
        declared = ",\n    ".join(PARAMETERS)
        body = family_text("thumb", "utvm_plain_depthwise")
        return (
            family_text("thumb", "utvm_plain_scale"),
            naked_function("utvm_plain_taps", TAPS_PARAMETERS, _lines(), taps, CONDITION),
            f"static void {self.function}(\n    {declared}) {{\n{body}}}\n",
        )

    def numbers(self, steps: Steps, count: int, channels: int) -> tuple[int, ...]:
        return (*super().numbers(steps, count, channels), self.taps.rows, self.taps.columns)


def plain_rows(window: Window) -> PlainRowProduct:
    """The micro-kernel for a window."""
    return PlainRowProduct(Taps(*window.kernel, False, PIXELS))


def _lines() -> list[str]:
    return [
        "push {r4-r7, lr}",
        "mov r4, r8",
        "mov r5, r9",
        "mov r6, r10",
        "mov r7, r11",
        "push {r4-r7}",
        "mov r11, r3",
        "ldmia r2!, {r4, r5, r6, r7}",
        "mov r10, r4",  # rows
        "mov lr, r5",  # bytes from a row's first column to behind its last
        "mov r12, r6",  # from there to the next row
        "mov r8, r7",  # from column to column
        "ldr r2, [r2]",
        "ldmia r3!, {r4, r5}",
        "mov r3, r2",
        "movs r2, #0",
        "1:",  # another row
        "mov r6, lr",
        "adds r6, r0",
        "mov r9, r6",
        "2:",  # another column
        "ldrsb r6, [r1, r2]",
        "ldrsb r7, [r0, r2]",
        "muls r7, r6",
        "adds r4, r7",
        "ldrsb r7, [r0, r3]",
        "muls r7, r6",
        "adds r5, r7",
        "adds r1, #1",
        "add r0, r8",
        "cmp r0, r9",
        "bne 2b",
        "add r0, r12",
        "mov r6, r10",
        "subs r6, #1",
        "mov r10, r6",
        "bne 1b",
        "mov r0, r11",
        "stmia r0!, {r4, r5}",
        "pop {r4-r7}",
        "mov r8, r4",
        "mov r9, r5",
        "mov r10, r6",
        "mov r11, r7",
        "pop {r4-r7, pc}",
    ]
