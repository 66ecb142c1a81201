"""AVERAGE_POOL_2D and MAX_POOL_2D of int8 in vectors of RISC-V: a channel in each lane.

Means are rounded as in ``native/dsp/pool.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from utvm_deploy.kernels.contract.c_texts import VECTORS
from utvm_deploy.kernels.native.pool import NativePool, pixel_parameters
from utvm_deploy.kernels.native.rvv.blocks import Block, Routine

_BLOCK = Block(2)
#: Maxima, and sums of int16.
_RESULT = "v8"


@dataclass(frozen=True)
class VectorPool(NativePool):
    """Shape parameters of a pooling layer."""

    family: ClassVar[str] = "rvv"
    condition: ClassVar[str] = VECTORS
    prefix: ClassVar[str] = "utvm_rvv"

    @property
    def why(self) -> str:
        return f"Zve32x assembly, {2 if self.is_average else 8} registers of channels"

    def pixel(self, core: str) -> Routine:
        return _pixel(self.is_average)


@lru_cache(maxsize=2)
def _pixel(is_average: bool) -> Routine:
    """t0 has the channels of a block, t1 and t3 its row and its position."""
    bits8 = _BLOCK.bits8 if is_average else "e8, m8, ta, mu"
    lines = ["mv s0, a5"]
    if is_average:
        # 257 times the positions, and 2**31 over the positions, rounded up.
        lines += ["mul s1, a2, a3", "lui t0, 0x80000", "remu t1, t0, s1", "divu s2, t0, s1"]
        lines += ["snez t1, t1", "add s2, s2, t1", "slli t0, s1, 8", "add s1, s1, t0"]
    lines += ["li s3, -128", "1:", f"vsetvli t0, a5, {bits8}"]
    if is_average:
        lines += [f"vsetvli zero, zero, {_BLOCK.bits16}", f"vmv.v.i {_RESULT}, 0"]
        lines += [f"vsetvli zero, zero, {bits8}"]
    else:
        lines += [f"vmv.v.x {_RESULT}, s3"]
    lines += ["mv t1, a0", "mv t2, a2", "2:", "mv t3, t1", "mv t4, a3", "3:", "vle8.v v0, (t3)"]
    gather = f"{'vwadd.wv' if is_average else 'vmax.vv'} {_RESULT}, {_RESULT}, v0"
    lines += ["add t3, t3, s0", "addi t4, t4, -1", gather, "bnez t4, 3b"]
    lines += ["add t1, t1, a4", "addi t2, t2, -1", "bnez t2, 2b", *(_mean() if is_average else ())]
    lines += [f"vmax.vx {_RESULT}, {_RESULT}, a6", f"vmin.vx {_RESULT}, {_RESULT}, a7"]
    lines += [f"vse8.v {_RESULT}, (a1)", "add a0, a0, t0", "add a1, a1, t0"]
    return Routine(pixel_parameters("int8"), [*lines, "sub a5, a5, t0", "bnez a5, 1b"])


def _mean() -> Iterator[str]:
    """Sums become means of int8."""
    yield from (f"vsetvli zero, zero, {_BLOCK.bits32}", f"vsext.vf2 v16, {_RESULT}")
    yield from ("vsra.vi v24, v16, 31", "vsll.vi v16, v16, 1", "vadd.vv v16, v16, v24")
    yield from ("vadd.vx v16, v16, s1", "vmulhu.vx v16, v16, s2", "vadd.vx v16, v16, s3")
    yield f"vsetvli zero, zero, {_BLOCK.bits16}"
    yield from (f"vnclip.wi {_RESULT}, v16, 0", f"vsetvli zero, zero, {_BLOCK.bits8}")
    yield f"vnclip.wi {_RESULT}, {_RESULT}, 0"
