"""DEPTHWISE_CONV_2D of int16 for cores with Helium: one pixel of eight channels at a time.

Weights are int8 [group][tap][lane]; the scaling of a group is int32 [bias, multiplier, right shift]
[even lanes, odd lanes], as VMULLB and VMULLT make products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.layer_tables import constants
from utvm_deploy.kernels.native.mve import depthwise_code
from utvm_deploy.kernels.native.mve.code import CONDITION
from utvm_deploy.kernels.native.routines.int16x8_depthwise import PARAMETERS, Int16x8Depthwise

_NAME = "utvm_mve_wide_depthwise"
_LANES = depthwise_code.GROUP
_WALK = 36 + 48  # where it lies on the stack


@dataclass(frozen=True)
class MveInt16x8Depthwise(Int16x8Depthwise):
    """One output of a channel, whose sum fits 32 bits."""

    family: ClassVar[str] = "_mve"
    lanes: ClassVar[int] = _LANES
    pixel: ClassVar[str] = _NAME
    why: ClassVar[str] = "Helium assembly, eight channels of a pixel"

    def pixel_text(self, core: str) -> str:
        return _pixel_text()

    @staticmethod
    def pack_scaling(bias: Array, multiplier: Array, right: Array) -> Array:
        # The table's second row of numbers that are shifted by: none to the left.
        return depthwise_code.pack_scaling(bias, multiplier, np.negative(right), has_left=False)


@lru_cache(maxsize=1)
def _pixel_text() -> str:
    return naked_function(_NAME, PARAMETERS, _lines(), family_text("mve", _NAME), CONDITION)


def _lines() -> list[str]:
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d13}",
        f"ldr r12, [sp, #{_WALK}]",
        "ldrd r11, r4, [r12, #28]",
        "vdup.16 q5, r11",
        "vdup.16 q6, r4",
        "ldrd r4, r5, [r12]",
        "ldrd r6, r7, [r12, #8]",
        "ldr r8, [r12, #16]",
        "ldr r10, [r12, #24]",
        "mov r9, r1",
        f"cmp r10, #{_LANES}",
        "blt 5f",
        "1:",
        *_group(2, is_masked=False),
        f"cmp r10, #{_LANES}",
        "bge 1b",
        "5:",
        "cmp r10, #0",
        "ble 9f",
        "vctp.16 r10",
        *_group(6, is_masked=True),
        "9:",
        "vpop {d8-d13}",
        "pop {r4-r11, pc}",
    ]


def _group(label: int, *, is_masked: bool) -> list[str]:
    """Eight channels of the pixel at r0, weights at r9; the rows are in r4, columns in r5."""
    mask, then = (["vpst"], "t") if is_masked else ([], "")
    return [
        "vldrw.32 q2, [r2]",
        "vldrw.32 q3, [r2, #16]",
        "mov r12, r0",
        "mov r1, r9",
        "movs r11, r4",
        f"beq {label + 2}f",
        f"{label}:",  # another row
        "dls lr, r5",
        f"{label + 1}:",  # another column
        *mask,
        f"vldrh{then}.16 q0, [r12]",
        "vldrb.s16 q1, [r1], #8",
        "add r12, r7",
        "vmullb.s16 q4, q0, q1",
        "vmullt.s16 q0, q0, q1",
        "vadd.i32 q2, q2, q4",
        "vadd.i32 q3, q3, q0",
        f"le lr, {label + 1}b",
        "add r12, r6",
        "add r1, r8",
        "subs r11, #1",
        f"bne {label}b",
        f"{label + 2}:",
        *(
            line
            for part, total in enumerate(("q2", "q3"))
            for line in (
                f"vldrw.32 q0, [r2, #{32 + 16 * part}]",
                f"vldrw.32 q1, [r2, #{64 + 16 * part}]",
                f"vmulh.s32 {total}, {total}, q0",
                f"vrshl.s32 {total}, {total}, q1",
            )
        ),
        "vqmovnb.s32 q2, q2",
        "vqmovnt.s32 q2, q3",
        f"ldr r11, [sp, #{_WALK}]",
        "vmax.s16 q2, q2, q5",
        "ldr r11, [r11, #20]",
        "vmin.s16 q2, q2, q6",
        "add r9, r11",
        *mask,
        f"vstrh{then}.16 q2, [r3], #16",
        "add r0, #16",
        "add r2, #96",
        f"subs r10, #{_LANES}",
    ]


def mve_wide_depthwise_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the generic one."""
    kernel = call.kernel
    if not isinstance(kernel, Int16x8Depthwise):
        return "it has several outputs of a channel, or its sums need more than 32 bits"
    given = constants(call)
    taps = math.prod(kernel.window.kernel)
    split = given["weights"].reshape(-1, taps, kernel.lanes).transpose(1, 0, 2)
    weights = split.reshape(taps, -1)[:, : kernel.channels]
    rows = given["scaling"].reshape(-1, 4, kernel.lanes).swapaxes(0, 1).reshape(4, -1)
    bias, multiplier, _, right = rows[:, : kernel.channels]
    made = MveInt16x8Depthwise(kernel.window, kernel.channels)
    source, _, _, _, *others = call.arguments
    tables = made.tables(weights, bias, multiplier, right)
    return replace(call, kernel=made, arguments=(source, *tables, *others))
