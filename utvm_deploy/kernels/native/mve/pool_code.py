"""The inner block of pooling in Helium: one pixel of all channels.

Largest values are kept for 32 channels at a time, sums for 16 as halfwords; what is left is done
in a masked vector, once more for every vector that is begun. Means are rounded as in
``native/dsp/pool_code.py``, in vectors of words.
"""

from __future__ import annotations

from functools import lru_cache

from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.dsp.pool_code import PARAMETERS
from utvm_deploy.kernels.native.mve.code import CONDITION

_SAVED_BYTES = 36 + 64


def name_of(is_average: bool) -> str:
    """The C function for a window."""
    return f"utvm_mve_{'average' if is_average else 'max'}_pixel"


@lru_cache(maxsize=2)
def pixel_text(is_average: bool) -> str:
    """The C text for a window; elsewhere the C of the DSP kernels."""
    plain = family_text("dsp", "utvm_average_pixel" if is_average else "utvm_max_pixel")
    name = name_of(is_average)
    return naked_function(name, PARAMETERS, _lines(is_average), plain, CONDITION)


def _lines(is_average: bool) -> list[str]:
    lanes = 8 if is_average else 16  # of a vector
    size = "16" if is_average else "8"
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d15}",
        f"ldrd r4, r5, [sp, #{_SAVED_BYTES}]",  # bytes of a row, channels
        f"ldrd r6, r7, [sp, #{_SAVED_BYTES + 8}]",
        f"vdup.{size} q6, r6",
        f"vdup.{size} q7, r7",
        *(_divisor() if is_average else []),
        "mov r6, r5",
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
    """In r12 257 times the count, in q5 2**31 / count, rounded up."""
    return [
        "mul r12, r2, r3",
        "mov r9, #0x80000000",
        "udiv r10, r9, r12",
        "mls r9, r10, r12, r9",
        "cmp r9, #0",
        "it ne",
        "addne r10, #1",
        "vdup.32 q5, r10",
        "add r12, r12, r12, lsl #8",
        "mvn r11, #127",
    ]


def _window(sums: tuple[str, ...], label: int, is_average: bool) -> list[str]:
    """So many vectors of channels; a single one is masked."""
    is_masked = len(sums) == 1
    step = 8 if is_average else 16
    then, mask = ("t", ["vpst"]) if is_masked else ("", [])
    size = "s16" if is_average else "8"
    start = "vmov.i32 {}, #0" if is_average else "vmov.i8 {}, #0x80"
    gather = "vadd.i16" if is_average else "vmax.s8"
    return [
        *(start.format(one) for one in sums),
        "mov r8, r0",
        "mov r9, r2",
        f"{label}:",  # another row
        "mov r7, r8",
        "dls lr, r3",
        f"{label + 1}:",  # another position
        *mask,
        *(f"vldrb{then}.{size} q{2 + n}, [r7, #{step * n}]" for n in range(len(sums))),
        "add r7, r5",
        *(f"{gather} {one}, {one}, q{2 + n}" for n, one in enumerate(sums)),
        f"le lr, {label + 1}b",
        "add r8, r4",
        "subs r9, #1",
        f"bne {label}b",
        f"adds r0, #{step * len(sums)}",
        *(line for one in sums if is_average for line in _mean(one)),
        *(f"vmax.{'s16' if is_average else 's8'} {one}, {one}, q6" for one in sums),
        *(f"vmin.{'s16' if is_average else 's8'} {one}, {one}, q7" for one in sums),
        *mask,
        *(f"vstrb{then}.{size[-2:].lstrip('s')} {one}, [r1, #{step * n}]"
          for n, one in enumerate(sums)),
        f"adds r1, #{step * len(sums)}",
    ]  # fmt: skip


def _mean(sums: str) -> list[str]:
    """Eight means in place of eight sums."""
    halves = ("q2", "q3")
    return [
        f"vmovlb.s16 q2, {sums}",
        f"vmovlt.s16 q3, {sums}",
        *(
            line
            for one in halves
            for line in (
                f"vshr.s32 q4, {one}, #31",
                f"vshl.i32 {one}, {one}, #1",
                f"vadd.i32 {one}, {one}, q4",
                f"vadd.i32 {one}, {one}, r12",
                f"vmulh.u32 {one}, {one}, q5",
            )
        ),
        f"vmovnb.i32 {sums}, q2",
        f"vmovnt.i32 {sums}, q3",
        f"vadd.i16 {sums}, {sums}, r11",
    ]
