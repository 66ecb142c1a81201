"""DEPTHWISE_CONV_2D of int16 by int8 weights, whose sums fit 32 bits: a pixel of all channels.

Taps that lie beside the image are left out: it is zero there. Four channels at a time; weights are
int8 [group][tap][lane], the scaling is int32 [group][bias, multiplier, rounding, shift][lane]. The
text serves every core; those with the DSP extension take its assembly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.dsp import CONDITION, selected
from utvm_deploy.kernels.isa.instructions import (
    Instruction,
    add,
    extend16,
    load,
    load_next,
    multiply_add,
    pack_halves,
    saturate,
    shift_right,
    store_next,
    subtract_flags,
)
from utvm_deploy.kernels.isa.list_scheduler import timing_of
from utvm_deploy.kernels.isa.routine import Routine, naked_function

PARAMETERS = (
    "const int16_t *first",
    "const int8_t *weights",
    "const int32_t *scaling",
    "int16_t *output",
    "const int32_t *walk",
)
_PIXEL = "utvm_wide_depthwise_four"
_LANES = 4
_SUMS = ("r4", "r5", "r6", "r7")
# Slots on the stack.
_SCALING, _OUTPUT, _FIRST, _WEIGHTS, _CHANNELS, _ROWS, _FRAME_BYTES = range(0, 28, 4)
_WALK = _FRAME_BYTES + 36


@dataclass(frozen=True)
class Int16x8Depthwise(RoutineKernel):
    """Shape parameters."""

    window: Window
    channels: int

    family: ClassVar[str] = ""
    lanes: ClassVar[int] = _LANES
    pixel: ClassVar[str] = "utvm_wide_depthwise_pixel"
    why: ClassVar[str] = "C, or DSP assembly: four channels of a pixel"

    @property
    def name(self) -> str:
        return f"depthwise_{self.window.label}_{self.channels}_pixels_16x8{self.family}"

    @property
    def geometry(self) -> Array:
        """As ``utvm_wide_depthwise`` reads it."""
        w = self.window
        image = (w.batch, w.height, w.width, self.channels, w.output_height, w.output_width)
        windows = (*w.kernel, *w.strides, *w.dilations, w.top, w.left)
        return np.array([*image, *windows], dtype=np.int32)

    @property
    def routine(self) -> RoutineCall:
        w = self.window
        groups = -(-self.channels // self.lanes)
        filled = groups * self.lanes
        rows, columns = w.kernel
        pixels = w.batch * w.output_height * w.output_width
        words = self.pack_scaling(*[np.zeros(self.channels, np.int32)] * 3).size
        parameters = (
            Operand("input", (w.batch * w.height * w.width * self.channels,), "int16"),
            Operand("geometry", (self.geometry.size,), "int32"),
            Operand("weights", (filled * rows * columns,), "int8"),
            Operand("scaling", (words,), "int32"),
            *("low", "high"),
            Operand("output", (pixels * self.channels,), "int16"),
        )
        return RoutineCall(f"utvm_wide_depthwise_by_{self.pixel}", parameters)

    def texts(self, core: str) -> tuple[str, ...]:
        names = ("LANES", str(self.lanes), 3), ("PIXEL", self.pixel, 2)
        return self.pixel_text(core), replaced(shared_text("utvm_wide_depthwise"), *names)

    def pixel_text(self, core: str) -> str:
        """The C text of the function of a pixel."""
        return pixel_text(core)

    @staticmethod
    def pack_scaling(bias: Array, multiplier: Array, right: Array) -> Array:
        """The numbers of each channel, multipliers of 31 bits -> the layout above."""
        rounding = 1 << (right.astype(np.int64) - 1).clip(0)
        groups = -(-bias.size // _LANES)
        filled = np.zeros((4, groups * _LANES), np.int32)
        filled[:, : bias.size] = [bias, multiplier, rounding, right]
        return np.ascontiguousarray(filled.reshape(4, groups, _LANES).swapaxes(0, 1)).reshape(-1)

    def tables(
        self, weights: Array, bias: Array, multiplier: Array, right: Array
    ) -> list[ConstantArgument]:
        """The constant arguments; ``weights`` are [taps, channels], or have more dimensions."""
        scaling = self.pack_scaling(bias, multiplier, right)
        return [
            ConstantArgument("geometry", self.geometry),
            ConstantArgument("weights", self.pack_weights(weights)),
            ConstantArgument("scaling", scaling),
        ]

    def pack_weights(self, weights: Array) -> Array:
        """[taps, channels] -> the layout above."""
        taps, channels = weights.reshape(-1, self.channels).shape
        groups = -(-channels // self.lanes)
        filled = np.zeros((taps, groups * self.lanes), np.int8)
        filled[:, :channels] = weights.reshape(taps, channels)
        split = filled.reshape(taps, groups, self.lanes).transpose(1, 0, 2)
        return np.ascontiguousarray(split).reshape(-1)


@lru_cache(maxsize=8)
def pixel_text(core: str) -> str:
    """The C text of a pixel of four channels and four more, and of what is left."""
    plain = "utvm_wide_depthwise_four"
    four = naked_function(_PIXEL, PARAMETERS, _lines(core), shared_text(plain), CONDITION)
    return f"{four}\n{shared_text('utvm_wide_depthwise_pixel')}"


def _lines(core: str) -> list[str]:
    r = Routine(timing_of(core))
    r.plain(
        "push {r4-r11, lr}",
        f"sub sp, #{_FRAME_BYTES}",
        f"strd r2, r3, [sp, #{_SCALING}]",
        f"strd r0, r1, [sp, #{_FIRST}]",
        f"ldr r0, [sp, #{_WALK}]",
        "ldr r1, [r0, #24]",
        f"str r1, [sp, #{_CHANNELS}]",
    )
    r.label("1")  # four more channels; r0 is the walk
    r.plain(
        f"ldrd r8, r9, [sp, #{_FIRST}]",
        f"ldr r12, [sp, #{_SCALING}]",
        "ldr r1, [r0]",
        "ldr r2, [r0, #12]",
        "ldm r12, {r4, r5, r6, r7}",
        "cmp r1, #0",
        "beq 6f",
    )
    r.label("2")  # another row
    r.plain("ldr r3, [r0, #4]", f"str r1, [sp, #{_ROWS}]", "subs r3, #3", "blt 4f")
    r.label("3", is_loop=True)  # three more columns
    taps = (("r10", "r11"), ("r0", "r1"), ("r10", "r11"))
    code = [one for pair in taps for one in _tap(*pair)]
    r.straight([*code, subtract_flags("r3", "r3", 3)], is_loop=True)
    r.plain("bge 3b")
    r.label("4")
    r.plain("adds r3, #3", "beq 5f")
    r.label("7", is_loop=True)  # another column
    r.straight([*_tap("r10", "r11"), subtract_flags("r3", "r3", 1)], is_loop=True)
    r.plain("bne 7b")
    r.label("5")
    r.plain(
        f"ldr r0, [sp, #{_WALK}]",
        f"ldr r1, [sp, #{_ROWS}]",
        "ldr r10, [r0, #8]",
        "ldr r11, [r0, #16]",
        "add r8, r10",
        "add r9, r11",
        "subs r1, #1",
        "bne 2b",
    )
    r.label("6")
    r.plain(f"ldrd r12, lr, [sp, #{_SCALING}]", "ldrd r8, r9, [r0, #28]")
    r.plain("pkhbt r8, r8, r8, lsl #16", "pkhbt r9, r9, r9, lsl #16")
    r.straight(_outputs())
    r.plain(
        "add r12, #64",
        f"strd r12, lr, [sp, #{_SCALING}]",
        f"ldrd r8, r9, [sp, #{_FIRST}]",
        "ldr r1, [r0, #20]",
        f"ldr r2, [sp, #{_CHANNELS}]",
        "add r8, #8",
        "add r9, r1",
        f"strd r8, r9, [sp, #{_FIRST}]",
        f"subs r2, #{_LANES}",
        f"str r2, [sp, #{_CHANNELS}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "pop {r4-r11, pc}",
    )
    return r.lines


def _tap(even: str, odd: str) -> list[Instruction]:
    """Four products; the column is at r8, its weights are at r9."""
    return [
        load_next(even, "r9", 4),
        load("r12", "r8"),
        load("lr", "r8", 4),
        add("r8", "r8", "r2"),
        extend16(odd, even, 8),
        extend16(even, even),
        multiply_add("smlabb", "r4", "r12", even, "r4"),
        multiply_add("smlatb", "r5", "r12", odd, "r5"),
        multiply_add("smlabt", "r6", "lr", even, "r6"),
        multiply_add("smlatt", "r7", "lr", odd, "r7"),
    ]


def _outputs() -> list[Instruction]:
    """Of four sums, to lr and behind; the scaling is at r12, limits are in r8 and r9."""
    code: list[Instruction] = []
    for lane, total in enumerate(_SUMS):
        multiplier, rounding = (("r1", "r2"), ("r3", "r10"))[lane % 2]
        code += [
            load(multiplier, "r12", 16 + 4 * lane),
            load(rounding, "r12", 32 + 4 * lane),
            multiply_add("smmla", total, total, multiplier, rounding),
            load(multiplier, "r12", 48 + 4 * lane),
            shift_right(total, total, multiplier),
            saturate(total, total, 16),
        ]
        if lane % 2:
            made = _SUMS[lane - 1]
            code += [
                pack_halves(made, made, total),
                *selected("r11", made, "r8", made, "r8", 16),
                *selected("r11", "r9", made, made, "r9", 16),
                store_next(made, "lr", 4),
            ]
    return code
