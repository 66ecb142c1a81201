"""AVERAGE_POOL_2D and MAX_POOL_2D of int16 for cores with Helium: one pixel of all channels.

Largest values are kept for 16 channels at a time, sums for 8 as words; what is left is done in a
masked vector. Means are quotients of magnitudes, by a multiplication with the count's reciprocal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.dsp.pool import DspPool
from utvm_deploy.kernels.native.mve.code import CONDITION
from utvm_deploy.kernels.native.pool import MOST_POSITIONS
from utvm_deploy.kernels.native.pool import PIXEL_PARAMETERS as PARAMETERS
from utvm_deploy.kernels.portable.pool import Pool2D

_SAVED_BYTES = 36 + 64


@dataclass(frozen=True)
class MveInt16Pool(RoutineKernel):
    """Shape parameters of a pooling layer."""

    window: Window
    channels: int
    is_average: bool

    @property
    def name(self) -> str:
        kind = "average" if self.is_average else "max"
        return f"{kind}_pool_{self.window.label}_{self.channels}_int16_mve"

    @property
    def geometry(self) -> ConstantArgument:
        """As ``utvm_pool`` of the DSP kernels reads it."""
        plain = DspPool(self.window, self.channels, self.is_average)
        return ConstantArgument("geometry", plain.geometry)

    @property
    def why(self) -> str:
        return f"Helium assembly, {4 if self.is_average else 8} channels in a vector"

    @property
    def routine(self) -> RoutineCall:
        w = self.window
        pixels = w.batch * w.output_height * w.output_width
        return RoutineCall(
            f"utvm_mve_wide_pool_by_{_driver(self.is_average)}",
            (
                Operand("input", (w.batch * w.height * w.width * self.channels,), "int16"),
                Operand("geometry", (self.geometry.data.size,), "int32"),
                *("low", "high"),
                Operand("output", (pixels * self.channels,), "int16"),
            ),
            (w.batch,),
        )

    def texts(self, core: str) -> tuple[str, ...]:
        return (_text(self.is_average),)


def mve_wide_pool_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the generic one."""
    kernel = call.kernel
    if not isinstance(kernel, Pool2D):
        return "it takes no maximum along one dimension"
    positions = math.prod(kernel.window.kernel)
    if kernel.is_average and positions > MOST_POSITIONS:
        return f"a window of {positions} positions"
    made = MveInt16Pool(kernel.window, kernel.channels, kernel.is_average)
    image, *others = call.arguments
    return replace(call, kernel=made, arguments=(image, made.geometry, *others))


def _driver(is_average: bool) -> str:
    return f"utvm_mve_wide_{'average' if is_average else 'max'}"


@lru_cache(maxsize=2)
def _text(is_average: bool) -> str:
    """The C text of all images, of one, and of a pixel, whose C is that of the DSP kernels."""
    driver = _driver(is_average)
    plain = replaced(
        shared_text("utvm_average_pixel" if is_average else "utvm_max_pixel"),
        ("int8_t", "int16_t", 1),
        ("= -128", "= -32768", 0 if is_average else 1),
    )
    parameters = replaced("\n".join(PARAMETERS), ("int8_t", "int16_t", 2)).split("\n")
    pixel = naked_function(f"{driver}_pixel", parameters, _lines(is_average), plain, CONDITION)
    names = ("UTVM_POOL", driver, 1), ("UTVM_PIXEL", f"{driver}_pixel", 1)
    image = replaced(shared_text("utvm_pool"), ("int8_t", "int16_t", 2), *names)
    batch = replaced(family_text("mve", "utvm_mve_wide_pool"), ("DRIVER", driver, 2))
    return f"{pixel}\n{image}\n{batch}"


def _lines(is_average: bool) -> list[str]:
    lanes, size = (4, "32") if is_average else (8, "16")
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d15}",
        f"ldrd r4, r5, [sp, #{_SAVED_BYTES}]",  # elements of a row, channels
        f"ldrd r6, r7, [sp, #{_SAVED_BYTES + 8}]",
        f"vdup.{size} q6, r6",
        f"vdup.{size} q7, r7",
        *(_divisor() if is_average else []),
        "mov r6, r5",
        "lsl r4, #1",
        "lsl r5, #1",
        f"cmp r6, #{2 * lanes}",
        "blt 4f",
        "1:",
        *_window(("q0", "q1"), 5, is_average),
        f"subs r6, #{2 * lanes}",
        f"cmp r6, #{2 * lanes}",
        "bge 1b",
        "4:",
        "cmp r6, #0",
        "ble 3f",
        "2:",
        f"vctp.{size} r6",
        *_window(("q0",), 7, is_average),
        f"subs r6, #{lanes}",
        "bgt 2b",
        "3:",
        "vpop {d8-d15}",
        "pop {r4-r11, pc}",
    ]


def _divisor() -> list[str]:
    """In r12 half the count, in q5 2**31 / count, rounded up."""
    return [
        "mul r12, r2, r3",
        "mov r9, #0x80000000",
        "udiv r10, r9, r12",
        "mls r9, r10, r12, r9",
        "cmp r9, #0",
        "it ne",
        "addne r10, #1",
        "vdup.32 q5, r10",
        "lsr r12, #1",
    ]


def _window(sums: tuple[str, ...], label: int, is_average: bool) -> list[str]:
    """So many vectors of channels; a single one is masked."""
    is_masked = len(sums) == 1
    step = 8 if is_average else 16  # bytes of a vector
    then, mask = ("t", ["vpst"]) if is_masked else ("", [])
    load, size = ("s32", "s32") if is_average else ("16", "s16")
    # The smallest value of a lane: what the largest one of a window begins at.
    start = ["vmov.i32 {}, #0"] if is_average else ["vmvn.i16 {0}, #0", "vshl.i16 {0}, {0}, #15"]
    gather = "vadd.i32" if is_average else "vmax.s16"
    return [
        *(line.format(one) for one in sums for line in start),
        "mov r8, r0",
        "mov r9, r2",
        f"{label}:",  # another row
        "mov r7, r8",
        "dls lr, r3",
        f"{label + 1}:",  # another position
        *mask,
        *(f"vldrh{then}.{load} q{2 + n}, [r7, #{step * n}]" for n in range(len(sums))),
        "add r7, r5",
        *(f"{gather} {one}, {one}, q{2 + n}" for n, one in enumerate(sums)),
        f"le lr, {label + 1}b",
        "add r8, r4",
        "subs r9, #1",
        f"bne {label}b",
        f"adds r0, #{step * len(sums)}",
        *(line for one in sums if is_average for line in _mean(one)),
        *(f"vmax.{size} {one}, {one}, q6" for one in sums),
        *(f"vmin.{size} {one}, {one}, q7" for one in sums),
        *mask,
        *(f"vstrh{then}.{size[1:]} {one}, [r1, #{step * n}]" for n, one in enumerate(sums)),
        f"adds r1, #{step * len(sums)}",
    ]


def _mean(sums: str) -> list[str]:
    """Four means in place of four sums, halves away from zero."""
    return [
        f"vshr.s32 q4, {sums}, #31",
        f"vabs.s32 {sums}, {sums}",
        f"vadd.i32 {sums}, {sums}, r12",
        f"vshl.i32 {sums}, {sums}, #1",
        f"vmulh.u32 {sums}, {sums}, q5",
        f"veor {sums}, {sums}, q4",
        f"vsub.i32 {sums}, {sums}, q4",
    ]
