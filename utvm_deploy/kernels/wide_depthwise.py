"""DEPTHWISE_CONV_2D of int16 by int8 weights, whose sums fit 32 bits: a pixel of all channels.

Taps that lie beside the image are left out: it is zero there. Four channels at a time; weights are
int8 [group][tap][lane], the scaling of a channel is int32 [bias, multiplier, rounding, shift]. The
text serves every core; those with the DSP extension take its assembly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument
from utvm_deploy.kernels.dsp.code import CONDITION
from utvm_deploy.kernels.micro.assembly import (
    add,
    extend16,
    load,
    load_next,
    multiply_add,
    subtract_flags,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine, naked_function
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import ANY_CORE, Operand, import_c
from utvm_deploy.kernels.whole import whole_call
from utvm_deploy.kernels.window import Window

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
_SCALING, _OUTPUT, _FIRST, _WEIGHTS, _CHANNELS, _FRAME_BYTES = range(0, 24, 4)
_WALK = _FRAME_BYTES + 36


@dataclass(frozen=True)
class WideDepthwise:
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

    def prim_func(self) -> Any:
        w = self.window
        groups = -(-self.channels // self.lanes)
        filled = groups * self.lanes
        rows, columns = w.kernel
        pixels = w.batch * w.output_height * w.output_width
        words = self.pack_scaling(*[np.zeros(self.channels, np.int32)] * 3).size
        return whole_call(
            f"utvm_wide_depthwise_by_{self.pixel}",
            [
                Operand("input", (w.batch * w.height * w.width * self.channels,), "int16"),
                Operand("geometry", (self.geometry.size,), "int32"),
                Operand("weights", (filled * rows * columns,), "int8"),
                Operand("scaling", (words,), "int32"),
                *("low", "high"),
                Operand("output", (pixels * self.channels,), "int16"),
            ],
            helpers=self._texts(ANY_CORE),
        )

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, *self._texts(core))
        return self.why

    def pixel_text(self, core: str) -> str:
        """The C text of the function of a pixel."""
        return pixel_text(core)

    @staticmethod
    def pack_scaling(bias: Array, multiplier: Array, right: Array) -> Array:
        """The numbers of each channel, multipliers of 31 bits -> the layout above."""
        rounding = 1 << (right.astype(np.int64) - 1).clip(0)
        table = np.stack([bias, multiplier, rounding, right], axis=1).astype(np.int32)
        return np.ascontiguousarray(table).reshape(-1)

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

    def _texts(self, core: str) -> list[str]:
        driver = shared_text("utvm_wide_depthwise").replace("LANES", str(self.lanes))
        return [self.pixel_text(core), driver.replace("PIXEL", self.pixel)]


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
    r.label("1")  # four more channels
    r.plain(
        *(f"mov {register}, #0" for register in _SUMS),
        f"ldrd r8, r9, [sp, #{_FIRST}]",
        "ldr r1, [r0]",
        "ldr r2, [r0, #12]",
        "cmp r1, #0",
        "beq 4f",
    )
    r.label("2")  # another row
    r.plain("ldr r3, [r0, #4]")
    r.label("3", is_loop=True)  # another column
    r.straight(
        [
            load("r12", "r8"),
            load("lr", "r8", 4),
            load_next("r10", "r9", 4),
            add("r8", "r8", "r2"),
            extend16("r11", "r10", 8),
            extend16("r10", "r10"),
            multiply_add("smlabb", "r4", "r12", "r10", "r4"),
            multiply_add("smlatb", "r5", "r12", "r11", "r5"),
            multiply_add("smlabt", "r6", "lr", "r10", "r6"),
            multiply_add("smlatt", "r7", "lr", "r11", "r7"),
            subtract_flags("r3", "r3", 1),
        ],
        is_loop=True,
    )
    r.plain(
        "bne 3b",
        "ldr r10, [r0, #8]",
        "ldr r11, [r0, #16]",
        "add r8, r10",
        "add r9, r11",
        "subs r1, #1",
        "bne 2b",
    )
    r.label("4")
    r.plain(f"ldrd r8, r9, [sp, #{_SCALING}]", "ldrd r12, lr, [r0, #28]")
    for total in _SUMS:
        r.plain(
            "ldm r8!, {r1, r2, r3, r10}",
            f"add {total}, r1",
            f"smmul {total}, {total}, r2",
            f"add {total}, r3",
            f"asr {total}, r10",
            f"cmp {total}, r12",
            "it lt",
            f"movlt {total}, r12",
            f"cmp {total}, lr",
            "it gt",
            f"movgt {total}, lr",
            f"strh {total}, [r9], #2",
        )
    r.plain(
        f"strd r8, r9, [sp, #{_SCALING}]",
        f"ldrd r8, r9, [sp, #{_FIRST}]",
        "ldr r1, [r0, #20]",
        "add r8, #8",
        "add r9, r1",
        f"strd r8, r9, [sp, #{_FIRST}]",
        f"ldr r1, [sp, #{_CHANNELS}]",
        f"subs r1, #{_LANES}",
        f"str r1, [sp, #{_CHANNELS}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "pop {r4-r11, pc}",
    )
    return r.lines
