"""DEPTHWISE_CONV_2D of int16 for cores with Helium: one pixel of eight channels at a time.

VMULLB multiplies the even lanes, VMULLT the odd ones. So the layouts are

    weights  int8  [group][tap][lane]
    scaling  int32 [group][bias, multiplier, right shift][even lanes, odd lanes]
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.mve.depthwise import GROUP, pack_scaling
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION, requantize_once
from utvm_deploy.kernels.native.routines.int16x8_depthwise import PARAMETERS, Int16x8Depthwise
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

_NAME = "utvm_mve_wide_depthwise"
_LANES = GROUP


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
        # Negative shifts are right shifts; there are no left ones.
        return pack_scaling(bias, multiplier, np.negative(right), has_left=False)


@code_cache
def _pixel_text() -> str:
    a = Assembler(CORTEX_M55, PARAMETERS)
    a.enter(vectors=("d8-d13",))
    walk = a.stack_argument("walk")
    # Words 0 and 1: rows and columns of the window. 2 and 3: bytes to the next row and column of
    # the image. 4 and 5: bytes to the next row of weights, and to the next group's weights.
    # 6: channels. 7 and 8: limits.
    a.ldr("r12", walk)
    a.ldrd("r11", "r4", at("r12", 28))
    a.vdup_16("q5", "r11")
    a.vdup_16("q6", "r4")
    a.ldrd("r4", "r5", at("r12"))
    a.ldrd("r6", "r7", at("r12", 8))
    a.ldr("r8", at("r12", 16))
    a.ldr("r10", at("r12", 24))
    a.mov("r9", a.argument("weights"))
    a.cmp("r10", _LANES)
    with a.unless("lt"), a.loop("ge"):
        _compute_group(a, walk, is_masked=False)
        a.cmp("r10", _LANES)
    a.cmp("r10", 0)
    with a.unless("le"):
        a.vctp_16("r10")
        _compute_group(a, walk, is_masked=True)
    a.leave()
    return a.c_function(_NAME, family_text("mve", _NAME), CONDITION)


def _compute_group(a: Assembler, walk: Slot, *, is_masked: bool) -> None:
    """Compute the outputs of eight channels of the pixel at r0, whose weights are at r9.

    r4: rows of the window; r5: its columns. ``is_masked``: the predicate selects the channels.
    """
    mask = a.predicated if is_masked else nullcontext
    a.vldrw_32("q2", at("r2"))
    a.vldrw_32("q3", at("r2", 16))
    a.mov("r12", "r0")
    a.mov("r1", "r9")
    a.movs("r11", "r4")
    with a.unless("eq"), a.loop("ne"):  # a row
        # Masked loads cannot be ordered.
        order = nullcontext() if is_masked else a.scheduled(is_loop=True)
        with a.hardware_loop("dls", "r5"), order:  # a column
            with mask():
                a.vldrh_16("q0", at("r12"))
            a.vldrb_s16("q1", post("r1", 8))
            a.add("r12", "r7")
            a.vmullb_s16("q4", "q0", "q1")
            a.vmullt_s16("q0", "q0", "q1")
            a.vadd_i32("q2", "q2", "q4")
            a.vadd_i32("q3", "q3", "q0")
        a.add("r12", "r6")
        a.add("r1", "r8")
        a.subs("r11", 1)
    with a.scheduled():
        for number, total in enumerate(("q2", "q3")):
            requantize_once(a, (total,), "r2", 32 + 16 * number, 32)
        a.vqmovnb_s32("q2", "q2")
        a.vqmovnt_s32("q2", "q3")
        a.ldr("r11", walk)
        a.vmax_s16("q2", "q2", "q5")
        a.ldr("r11", at("r11", 20))
        a.vmin_s16("q2", "q2", "q6")
        a.add("r9", "r11")
    with mask():
        a.vstrh_16("q2", post("r3", 16))
    a.add("r0", 16)
    a.add("r2", 96)
    a.subs("r10", _LANES)


def mve_int16x8_depthwise_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    kernel = call.kernel
    if not isinstance(kernel, Int16x8Depthwise):
        return "it has several outputs of a channel, or its sums need more than 32 bits"
    return kernel.by(MveInt16x8Depthwise, call)
