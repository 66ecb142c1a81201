"""AVERAGE_POOL_2D and MAX_POOL_2D in Helium, of int8 and int16: a channel in each lane.

Lanes of maxima are as wide as an element, lanes of sums twice as wide. Two vectors of channels are
computed at a time. The channels that remain are done in masked vectors, one at a time. Means of
int8 are rounded as in ``native/dsp/pool.py``; means of int16 are quotients of magnitudes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from utvm_deploy.cores.timing_m55 import CORTEX_M55
from utvm_deploy.kernels.contract.extents import type_label
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import at, instruction
from utvm_deploy.kernels.native.mve.code import CONDITION
from utvm_deploy.kernels.native.pool import NativePool, pixel_parameters


@dataclass(frozen=True)
class _Lanes:
    """The size of elements and lanes in bits, and the instructions for them."""

    element: int
    is_average: bool

    @property
    def bits(self) -> int:
        """The size of a lane."""
        return 2 * self.element if self.is_average else self.element

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        return 128 // self.bits

    @property
    def step(self) -> int:
        """The channels of a vector, in bytes of memory."""
        return self.count * self.element // 8

    @property
    def load(self) -> str:
        extension = "s" if self.is_average else ""
        return f"vldr{self._letter}.{extension}{self.bits}"

    @property
    def gather(self) -> str:
        return f"vadd.i{self.bits}" if self.is_average else f"vmax.s{self.bits}"

    @property
    def store(self) -> str:
        return f"vstr{self._letter}.{self.bits}"

    @property
    def _letter(self) -> str:
        return {8: "b", 16: "h"}[self.element]


@dataclass(frozen=True)
class MvePool(NativePool):
    """Shape parameters of a pooling layer."""

    family: ClassVar[str] = "mve"
    condition: ClassVar[str] = CONDITION

    @property
    def prefix(self) -> str:
        return f"utvm_mve{type_label(self.dtype)}"

    @property
    def why(self) -> str:
        return f"Helium assembly, {_lanes(self.dtype, self.is_average).count} channels in a vector"

    def pixel(self, core: str) -> Assembler:
        return _pixel(self.dtype, self.is_average)


def _lanes(dtype: str, is_average: bool) -> _Lanes:
    return _Lanes(int(dtype.removeprefix("int")), is_average)


@lru_cache(maxsize=4)
def _pixel(dtype: str, is_average: bool) -> Assembler:
    lanes = _lanes(dtype, is_average)
    a = Assembler(CORTEX_M55, pixel_parameters(dtype))
    a.enter(vectors=("d8-d15",))
    a.ldrd("r4", "r5", a.stack_argument("row_bytes"))
    a.ldrd("r6", "r7", a.stack_argument("low"))
    a.emit(instruction(f"vdup.{lanes.bits}", "q6", "r6"))
    a.emit(instruction(f"vdup.{lanes.bits}", "q7", "r7"))
    if is_average:
        _load_divisor(a, lanes)
    a.mov("r6", "r5")
    if lanes.element == 16:  # from elements to bytes
        a.lsl("r4", "r4", 1)
        a.lsl("r5", "r5", 1)
    a.cmp("r6", 2 * lanes.count)
    with a.unless("lt"), a.loop("ge"):
        _compute_vectors(a, lanes, ("q0", "q1"))
        a.subs("r6", 2 * lanes.count)
        a.cmp("r6", 2 * lanes.count)
    a.cmp("r6", 0)
    with a.unless("le"), a.loop("gt"):
        a.emit(instruction(f"vctp.{lanes.bits}", "r6"))
        _compute_vectors(a, lanes, ("q0",))
        a.subs("r6", lanes.count)
    a.leave()
    return a


def _load_divisor(a: Assembler, lanes: _Lanes) -> None:
    """What means need of the count, which is r2 times r3.

    q5 becomes 2**31 / count, rounded up. r12 becomes half of the count for int16; for int8 257
    times the count, and r11 -128.
    """
    a.mul("r12", "r2", "r3")
    a.mov("r9", 0x80000000)
    a.udiv("r10", "r9", "r12")
    a.mls("r9", "r10", "r12", "r9")
    a.cmp("r9", 0)
    with a.when("ne"):
        a.add("r10", 1)
    a.vdup_32("q5", "r10")
    if lanes.element == 16:
        a.lsr("r12", 1)
    else:
        a.add("r12", "r12", "r12", "lsl #8")
        a.mvn("r11", 127)


def _compute_vectors(a: Assembler, lanes: _Lanes, results: Sequence[str]) -> None:
    """Compute the channels of one or two vectors; a single vector is masked."""
    is_masked = len(results) == 1
    mask = a.predicated if is_masked else nullcontext
    loaded = ("q2", "q3")[: len(results)]
    for one in results:
        _start(a, lanes, one)
    a.mov("r8", "r0")
    a.mov("r9", "r2")
    with a.loop("ne"):  # a row
        a.mov("r7", "r8")
        # Masked loads cannot be ordered.
        order = nullcontext() if is_masked else a.scheduled(is_loop=True)
        with a.hardware_loop("dls", "r3"), order:  # a position
            with mask():
                for number, one in enumerate(loaded):
                    a.emit(instruction(lanes.load, one, at("r7", lanes.step * number)))
            a.add("r7", "r5")
            for result, one in zip(results, loaded, strict=True):
                a.emit(instruction(lanes.gather, result, result, one))
        a.add("r8", "r4")
        a.subs("r9", 1)
    with a.scheduled():
        a.adds("r0", lanes.step * len(results))
        if lanes.is_average:
            for one in results:
                (_divide_int16 if lanes.element == 16 else _divide_int8)(a, one)
        for limit, bound in (("vmax", "q6"), ("vmin", "q7")):
            for one in results:
                a.emit(instruction(f"{limit}.s{lanes.bits}", one, one, bound))
    with mask():
        for number, one in enumerate(results):
            a.emit(instruction(lanes.store, one, at("r1", lanes.step * number)))
    a.adds("r1", lanes.step * len(results))


def _start(a: Assembler, lanes: _Lanes, result: str) -> None:
    """0 for a sum, the smallest element for a maximum."""
    if lanes.is_average:
        a.vmov_i32(result, 0)
    elif lanes.element == 8:
        a.vmov_i8(result, 0x80)
    else:
        a.vmvn_i16(result, 0)
        a.vshl_i16(result, result, 15)


def _divide_int8(a: Assembler, sums: str) -> None:
    """Eight sums become means, in place. Overwrites q2 to q4."""
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


def _divide_int16(a: Assembler, sums: str) -> None:
    """Four sums become means, in place, halves away from zero. Overwrites q4."""
    a.vshr_s32("q4", sums, 31)
    a.vabs_s32(sums, sums)
    a.vadd_i32(sums, sums, "r12")
    a.vshl_i32(sums, sums, 1)
    a.vmulh_u32(sums, sums, "q5")
    a.veor(sums, sums, "q4")
    a.vsub_i32(sums, sums, "q4")
