"""AVERAGE_POOL_2D and MAX_POOL_2D in Helium.

A lane of a vector has a channel. Maxima are computed for two vectors of channels at a time, sums
for two vectors of lanes that are twice as wide as an element. The channels that are left are done
in one masked vector at a time. ``native/dsp/pool.py`` says how means are rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import at, instruction
from utvm_deploy.kernels.native.mve.code import CONDITION
from utvm_deploy.kernels.native.pool import PIXEL_PARAMETERS, NativePool

_VECTOR_BITS = 128


@dataclass(frozen=True)
class MvePool(NativePool):
    """Shape parameters of a pooling layer."""

    family: ClassVar[str] = "mve"
    condition: ClassVar[str] = CONDITION
    prefix: ClassVar[str] = "utvm_mve"

    @property
    def why(self) -> str:
        return "Helium assembly, 16 channels in a vector"

    def pixel(self, core: str) -> Assembler:
        return _pixel(self.is_average)


@lru_cache(maxsize=2)
def _pixel(is_average: bool) -> Assembler:
    bits = 16 if is_average else 8  # of a lane
    lanes = _VECTOR_BITS // bits
    a = Assembler(parameters=PIXEL_PARAMETERS)
    a.enter(vectors=("d8-d15",))
    a.ldrd("r4", "r5", a.stack_argument("row_bytes"))
    a.ldrd("r6", "r7", a.stack_argument("low"))
    a.emit(instruction(f"vdup.{bits}", "q6", "r6"))
    a.emit(instruction(f"vdup.{bits}", "q7", "r7"))
    if is_average:
        _load_divisor(a)
    a.mov("r6", "r5")
    a.cmp("r6", 2 * lanes)
    with a.unless("lt"), a.loop("ge"):
        _compute_vectors(a, ("q0", "q1"), is_average)
        a.subs("r6", 2 * lanes)
        a.cmp("r6", 2 * lanes)
    a.cmp("r6", 0)
    with a.unless("le"), a.loop("gt"):
        a.emit(instruction(f"vctp.{bits}", "r6"))
        _compute_vectors(a, ("q0",), is_average)
        a.subs("r6", lanes)
    a.leave()
    return a


def _load_divisor(a: Assembler) -> None:
    """r12 becomes 257 times the count, which is r2 times r3; q5 2**31 / count, rounded up."""
    a.mul("r12", "r2", "r3")
    a.mov("r9", 0x80000000)
    a.udiv("r10", "r9", "r12")
    a.mls("r9", "r10", "r12", "r9")
    a.cmp("r9", 0)
    with a.when("ne"):
        a.add("r10", 1)
    a.vdup_32("q5", "r10")
    a.add("r12", "r12", "r12", "lsl #8")
    a.mvn("r11", 127)


def _compute_vectors(a: Assembler, sums: Sequence[str], is_average: bool) -> None:
    """Compute the channels of one or two vectors; a single vector is masked."""
    lane, load = ("s16", "vldrb.s16") if is_average else ("s8", "vldrb.8")
    store, gather = ("vstrb.16", "vadd.i16") if is_average else ("vstrb.8", "vmax.s8")
    step = _VECTOR_BITS // int(lane[1:])  # bytes of a vector's channels
    mask = a.predicated if len(sums) == 1 else nullcontext
    for one in sums:
        if is_average:
            a.vmov_i32(one, 0)
        else:
            a.vmov_i8(one, 0x80)
    a.mov("r8", "r0")
    a.mov("r9", "r2")
    with a.loop("ne"):  # a row
        a.mov("r7", "r8")
        with a.hardware_loop("dls", "r3"):  # a position
            with mask():
                for number in range(len(sums)):
                    a.emit(instruction(load, f"q{2 + number}", at("r7", step * number)))
            a.add("r7", "r5")
            for number, one in enumerate(sums):
                a.emit(instruction(gather, one, one, f"q{2 + number}"))
        a.add("r8", "r4")
        a.subs("r9", 1)
    a.adds("r0", step * len(sums))
    if is_average:
        for one in sums:
            _divide(a, one)
    for limit, bound in (("vmax", "q6"), ("vmin", "q7")):
        for one in sums:
            a.emit(instruction(f"{limit}.{lane}", one, one, bound))
    with mask():
        for number, one in enumerate(sums):
            a.emit(instruction(store, one, at("r1", step * number)))
    a.adds("r1", step * len(sums))


def _divide(a: Assembler, sums: str) -> None:
    """Eight sums of 16 bits become means, in place. Overwrites q2 to q4."""
    a.vmovlb_s16("q2", sums)
    a.vmovlt_s16("q3", sums)
    for half in ("q2", "q3"):
        a.vshr_s32("q4", half, 31)
        a.vshl_i32(half, half, 1)
        a.vadd_i32(half, half, "q4")
        a.vadd_i32(half, half, "r12")
        a.vmulh_u32(half, half, "q5")
    a.vmovnb_i32(sums, "q2")
    a.vmovnt_i32(sums, "q3")
    a.vadd_i16(sums, sums, "r11")
