"""Blocks that the routines of float32 share: registers, sums of zero, limits, stores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from utvm_deploy.graph.attribute_values import Limits
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.mnemonics import FLAGS_OF_SINGLES, at, clear_pair
from utvm_deploy.targets.arm_m.timings import timing_of
from utvm_deploy.targets.contract.timing import Kind

#: Where the assembly can be used; everywhere else the C does the work.
CONDITION = "defined(__ARM_FP) && (__ARM_FP & 4) && defined(__thumb2__) && defined(__GNUC__)"
#: The attribute of that C, which ``c/utvm_exact_float.h`` defines.
ATTRIBUTE = "UTVM_EXACT_FLOAT "
#: Registers of single precision.
REGISTERS = 32
#: Registers that ``finish`` needs in addition to the sums.
LEAST_FREE = 6
#: Bits of ``mode``: outputs are checked for infinities and NaN; limited below; limited above.
CHECKED, LIMITED_BELOW, LIMITED_ABOVE = 1, 2, 4


def attribute_of(dtype: str) -> str:
    """The attribute for kernels of a type; the functions of float16 have one result anyhow."""
    return ATTRIBUTE if dtype == "float32" else ""


def parameters_of(floats: str, dtype: str) -> str:
    """The parameters of a C function of another type than float32."""
    return floats if dtype == "float32" else replaced(floats, ("float", f"{dtype}_t", 4))


def run(first: int, count: int) -> tuple[str, ...]:
    """The operand of VLDM and VSTM: ``count`` registers from number ``first`` on."""
    return (f"s{first}",) if count == 1 else (f"s{first}-s{first + count - 1}",)


class Products:
    """How a core adds products to sums.

    VMLA takes longer than VMUL and VADD on a Cortex-M4, and as long as one of them on an M7. Where
    it takes longer, so does VFMA, which then replaces neither.
    """

    def __init__(self, core: str, *, fused: bool) -> None:
        timing = timing_of(core)
        chained, product, total = (
            timing.row(kind).cycles for kind in (Kind.FP_CHAINED, Kind.FP_MULTIPLY, Kind.FP_ADD)
        )
        self._is_split = chained > product + total
        self._is_fused = fused
        #: Registers that are left to sums, weights and pixels.
        self.registers = REGISTERS - 2 if self._is_split else REGISTERS

    def add(self, a: Assembler, products: Sequence[tuple[str, str, str]]) -> None:
        """Add products to sums, in this order: sum, one factor, the other."""
        if not self._is_split:
            multiply = a.vfma_f32 if self._is_fused else a.vmla_f32
            for one in products:
                multiply(*one)
            return
        # Two at a time: a sum would wait for its product.
        for first in range(0, len(products), 2):
            some = [
                (f"s{self.registers + at}", one)
                for at, one in enumerate(products[first : first + 2])
            ]
            for product, (_, left, right) in some:
                a.vmul_f32(product, left, right)
            for product, (total, _, _) in some:
                a.vadd_f32(total, total, product)


def clear(a: Assembler, count: int) -> None:
    """Set s0 to s(count - 1) to +0.0, and the next one, too, if ``count`` is odd. Uses r12."""
    a.movs("r12", 0)
    for first in range(0, count, 2):
        a.emit(clear_pair(first))


def limits_table(limits: Limits) -> Array:
    """What the routines read: the least and the largest output."""
    return np.array(limits or (-math.inf, math.inf), dtype=np.float32)


def mode_of(limits: Limits) -> int:
    """What the routines have to do for limits.

    Finite outputs need no comparison with the largest or least finite number.
    """
    least, most = (float(one) for one in limits_table(limits))
    if (least, most) == (-math.inf, math.inf):
        return 0
    largest = float(np.finfo(np.float32).max)
    mode = CHECKED
    mode |= LIMITED_BELOW if least > -largest else 0
    return mode | (LIMITED_ABOVE if most < largest else 0)


def finish(a: Assembler, pixels: int, channels: int, *, extremes: bool) -> None:
    """Limit the sums of a tile and store them.

    The sum of pixel P and channel C is in register P * channels + C.

    r2 points at the limits, and r3 at the output of the first pixel. From pixel to pixel are r7
    bytes. r4 pixels are stored. The mode is in r11. r10, r12, lr and the registers after the sums
    are free.

    VMAXNM and VMINNM are not std::max and std::min for NaN. So sums are limited in registers only
    if all are finite: the sum of all products with 0 shows that. If not, and on cores without
    these instructions, outputs are limited one by one after they were stored.
    """
    sums = [f"s{n}" for n in range(pixels * channels)]
    zero, *checks, least, most = (f"s{len(sums) + n}" for n in range(LEAST_FREE))
    slow, store, done = Label(), Label(), Label()
    a.mov("lr", 0)
    a.cmp("r11", 0)
    a.b(store, "eq")
    a.mov("r12", 0)
    for one in (zero, *checks):
        a.vmov(one, "r12")
    a.vldr(least, at("r2"))
    a.vldr(most, at("r2", 4))
    for number, one in enumerate(sums):
        a.vmla_f32(checks[number % 3], one, zero)
    a.vadd_f32(checks[0], checks[0], checks[1])
    a.vadd_f32(checks[0], checks[0], checks[2])
    a.vcmp_f32(checks[0], checks[0])
    a.emit(FLAGS_OF_SINGLES)
    a.b(slow, "vs")
    if extremes:
        for bit, limit, operation in (
            (LIMITED_BELOW, least, a.vmaxnm_f32),
            (LIMITED_ABOVE, most, a.vminnm_f32),
        ):
            a.tst("r11", bit)
            with a.unless("eq"):
                for one in sums:
                    operation(one, one, limit)
        a.b(store)
    else:
        a.cmp("r11", CHECKED)
        a.b(store, "eq")
    a.place(slow)
    a.mov("lr", 1)
    a.place(store)
    _store(a, pixels, channels)
    a.cmp("lr", 0)
    a.b(done, "eq")
    _limit_stored(a, channels, (zero, least, most))
    a.place(done)


def _store(a: Assembler, pixels: int, channels: int) -> None:
    """Store the sums of r4 pixels from r3 on."""
    behind = Label()
    a.mov("r10", "r3")
    a.mov("r12", "r4")
    for pixel in range(pixels):
        if pixel:
            a.add("r10", "r7")
            a.subs("r12", 1)
            a.b(behind, "eq")
        a.vstmia("r10", run(pixel * channels, channels))
    a.place(behind)


def _limit_stored(a: Assembler, channels: int, registers: Sequence[str]) -> None:
    """Limit the stored outputs as std::min(std::max(x, least), most) does."""
    value, least, most = registers
    a.mov("r10", "r3")
    a.mov("r12", "r4")
    with a.loop("ne"):
        a.mov("lr", channels)
        with a.loop("ne"):
            a.vldr(value, at("r10"))
            for left, right, limit in ((value, least, least), (most, value, most)):
                a.vcmp_f32(left, right)
                a.emit(FLAGS_OF_SINGLES)
                with a.when("mi"):
                    a.vmov_f32(value, limit)
            a.vstr(value, at("r10"))
            a.add("r10", 4)
            a.subs("lr", 1)
        a.add("r10", "r7")
        a.sub("r10", 4 * channels)
        a.subs("r12", 1)
