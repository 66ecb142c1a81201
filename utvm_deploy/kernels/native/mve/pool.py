"""AVERAGE_POOL_2D and MAX_POOL_2D in Helium, of int8 and int16: a channel in each lane.

Lanes of maxima are as wide as an element, lanes of sums twice as wide. Two vectors of channels are
computed at a time. The channels that remain are done in masked vectors, one at a time. Means of
int8 are rounded as in ``native/dsp/pool.py``; means of int16 are quotients of magnitudes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at, instruction
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION
from utvm_deploy.kernels.native.pool import NativePool, load_reciprocal, pixel_parameters
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55


class _Vector(NamedTuple):
    """A vector of channels, one in each lane, and the instructions for it."""

    lanes: int
    size_bytes: int  # in memory
    load: str
    gather: str
    store: str

    @property
    def bits(self) -> int:
        """The size of a lane."""
        return 128 // self.lanes


#: By type of the elements, and whether they are averaged.
_VECTORS = {
    ("int8", False): _Vector(16, 16, "vldrb.8", "vmax.s8", "vstrb.8"),
    ("int8", True): _Vector(8, 8, "vldrb.s16", "vadd.i16", "vstrb.16"),
    ("int16", False): _Vector(8, 16, "vldrh.16", "vmax.s16", "vstrh.16"),
    ("int16", True): _Vector(4, 8, "vldrh.s32", "vadd.i32", "vstrh.32"),
}


@dataclass(frozen=True)
class MvePool(NativePool):
    """Shape parameters of a pooling layer."""

    family: ClassVar[str] = "mve"
    condition: ClassVar[str] = CONDITION
    prefix: ClassVar[str] = "utvm_mve"

    @property
    def why(self) -> str:
        vector = _VECTORS[self.dtype, self.is_average]
        return f"Helium assembly, {vector.lanes} channels in a vector"

    def pixel(self, core: str) -> Assembler:
        return _pixel(self.dtype, self.is_average)


@code_cache
def _pixel(dtype: str, is_average: bool) -> Assembler:
    vector = _VECTORS[dtype, is_average]
    a = Assembler(CORTEX_M55, pixel_parameters(dtype))
    a.enter(vectors=("d8-d15",))
    a.ldrd("r4", "r5", a.stack_argument("row_bytes"))
    a.ldrd("r6", "r7", a.stack_argument("low"))
    for bound, limit in (("q6", "r6"), ("q7", "r7")):
        a.emit(instruction(f"vdup.{vector.bits}", bound, limit))
    if is_average:
        _load_divisor(a, dtype)
    a.mov("r6", "r5")
    if dtype == "int16":  # from elements to bytes
        a.lsl("r4", "r4", 1)
        a.lsl("r5", "r5", 1)
    a.cmp("r6", 2 * vector.lanes)
    with a.unless("lt"), a.loop("ge"):
        _compute_vectors(a, dtype, is_average, ("q0", "q1"))
        a.subs("r6", 2 * vector.lanes)
        a.cmp("r6", 2 * vector.lanes)
    a.cmp("r6", 0)
    with a.unless("le"), a.loop("gt"):
        a.emit(instruction(f"vctp.{vector.bits}", "r6"))
        _compute_vectors(a, dtype, is_average, ("q0",))
        a.subs("r6", vector.lanes)
    a.leave()
    return a


def _load_divisor(a: Assembler, dtype: str) -> None:
    """Load what means need of the count, which is r2 times r3.

    q5 becomes 2**31 / count, rounded up. For int8, r12 becomes 257 times the count, and r11 -128.
    For int16, r12 becomes half the count.
    """
    load_reciprocal(a, "r12", "r10", "r9")
    a.vdup_32("q5", "r10")
    if dtype == "int16":
        a.lsr("r12", 1)
    else:
        a.add("r12", "r12", "r12", "lsl #8")
        a.mvn("r11", 127)


def _compute_vectors(a: Assembler, dtype: str, is_average: bool, results: Sequence[str]) -> None:
    """Compute the channels of one or two vectors; a single vector is masked."""
    vector = _VECTORS[dtype, is_average]
    is_masked = len(results) == 1
    mask = a.predicated if is_masked else nullcontext
    loaded = ("q2", "q3")[: len(results)]
    for one in results:
        _start(a, dtype, is_average, one)
    a.mov("r8", "r0")
    a.mov("r9", "r2")
    with a.loop("ne"):  # a row
        a.mov("r7", "r8")
        # Masked loads cannot be ordered.
        order = nullcontext() if is_masked else a.scheduled(is_loop=True)
        with a.hardware_loop("dls", "r3"), order:  # a position
            with mask():
                for number, one in enumerate(loaded):
                    a.emit(instruction(vector.load, one, at("r7", vector.size_bytes * number)))
            a.add("r7", "r5")
            for result, one in zip(results, loaded, strict=True):
                a.emit(instruction(vector.gather, result, result, one))
        a.add("r8", "r4")
        a.subs("r9", 1)
    with a.scheduled():
        a.adds("r0", vector.size_bytes * len(results))
        if is_average:
            for one in results:
                (_divide_int16 if dtype == "int16" else _divide_int8)(a, one)
        for limit, bound in (("vmax", "q6"), ("vmin", "q7")):
            for one in results:
                a.emit(instruction(f"{limit}.s{vector.bits}", one, one, bound))
    with mask():
        for number, one in enumerate(results):
            a.emit(instruction(vector.store, one, at("r1", vector.size_bytes * number)))
    a.adds("r1", vector.size_bytes * len(results))


def _start(a: Assembler, dtype: str, is_average: bool, result: str) -> None:
    """0 for a sum, the smallest element for a maximum."""
    if is_average:
        a.vmov_i32(result, 0)
    elif dtype == "int8":
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
