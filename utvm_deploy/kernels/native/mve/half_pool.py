"""AVERAGE_POOL_2D and MAX_POOL_2D of float16 in Helium: eight channels in a vector.

Of each position, the lanes beyond the channels are masked. A mean is the sum times a power of two,
which is exact: other windows, and those with padding, are left to plain C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at
from utvm_deploy.kernels.native.fpu.operands import elements
from utvm_deploy.kernels.native.fpu.shared_blocks import limits_table
from utvm_deploy.kernels.native.mve.float_lanes import HALVES, VECTOR_BYTES, half_texts
from utvm_deploy.kernels.native.mve.float_rows import FLOAT_CONDITION
from utvm_deploy.kernels.native.pool import NativePool, pixel_parameters
from utvm_deploy.kernels.portable.floats.float_pool import FloatPool2D
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: 1 / count of more positions is a denormal number.
_MOST_POSITIONS = 1 << 14
#: Minus infinity.
_LOWEST = 0xFC00


@dataclass(frozen=True)
class HalfPool(NativePool):
    """Shape parameters of a pooling layer."""

    dtype: str = HALVES.dtype

    family: ClassVar[str] = "mve"
    condition: ClassVar[str] = FLOAT_CONDITION
    prefix: ClassVar[str] = "utvm_mve_half"

    @property
    def name(self) -> str:
        return f"{self._kind}_pool_half_{self.window.label}_{self.channels}_mve"

    @property
    def why(self) -> str:
        return "Helium assembly, 8 channels in a vector"

    def pixel(self, core: str) -> Assembler:
        return _pixel(self.is_average)

    def texts(self, core: str) -> tuple[str, ...]:
        name, kind = f"{self._prefix}_{self._kind}_pixel", f"utvm_half_{self._kind}_pixel"
        symbol = FLOAT16_ARITHMETIC.symbol("").rstrip("_")
        times = 5 if self.is_average else 3
        body = replaced(family_text("mve", kind), ("FORMAT", symbol, times))
        names = ("UTVM_PIXEL", name, 1), ("UTVM_POOL", self._function, 1)
        return (
            *half_texts(body),
            self.pixel(core).c_function(name, body, self.condition),
            replaced(shared_text("utvm_pool"), ("int8_t", f"{self.dtype}_t", 2), *names),
        )


@code_cache
def _pixel(is_average: bool) -> Assembler:
    a = Assembler(CORTEX_M55, pixel_parameters(HALVES.dtype))
    a.enter(vectors=("d8-d15",))
    a.ldrd("r4", "r6", a.stack_argument("row_bytes"))
    a.ldrd("r8", "r9", a.stack_argument("low"))
    a.vdup_16("q6", "r8")
    a.vdup_16("q7", "r9")
    a.lsl("r4", "r4", 1)  # from elements to bytes
    a.lsl("r5", "r6", 1)
    if is_average:  # the bits of 2^-n for a count of 2^n
        a.mul("r12", "r2", "r3")
        a.clz("r12", "r12")
        a.sub("r12", "r12", 16)
        a.lsl("r12", "r12", 10)
    with a.loop("gt"):  # vectors of channels
        a.mov("r8", 0 if is_average else _LOWEST)
        a.vdup_16("q0", "r8")
        a.mov("r8", "r0")
        a.mov("r9", "r2")
        with a.loop("ne"):  # rows
            a.mov("r7", "r8")
            with a.hardware_loop("dls", "r3"):
                a.vctp_16("r6")
                with a.predicated():
                    a.vldrh_u16("q1", at("r7"))
                a.add("r7", "r5")
                if is_average:
                    a.vadd_f16("q0", "q0", "q1")
                else:
                    _chosen(a, "q1", "q0", "q1")
            a.add("r8", "r4")
            a.subs("r9", 1)
        if is_average:
            a.vmul_f16("q0", "q0", "r12")
        _chosen(a, "q6", "q0", "q6")
        _chosen(a, "q0", "q7", "q7")
        a.vctp_16("r6")
        with a.predicated():
            a.vstrh_16("q0", at("r1"))
        a.add("r0", VECTOR_BYTES)
        a.add("r1", VECTOR_BYTES)
        a.subs("r6", HALVES.count)
    a.leave()
    return a


def _chosen(a: Assembler, large: str, small: str, other: str) -> None:
    """q0 becomes ``other`` where ``large`` is greater than ``small``; not where one is NaN."""
    a.vcmp_f16("gt", large, small)
    a.vpsel("q0", other, "q0")


def build_half_pool(layer: Layer, wish: Wish) -> KernelCall | str:
    """A pool of float32, computed with numbers of float16."""
    portable = layer.portable.kernel
    if not isinstance(portable, FloatPool2D) or portable.kind not in ("average", "max"):
        return "it is not a maximum or a mean"
    window, is_average = portable.window, portable.kind == "average"
    count = math.prod(window.kernel)
    if is_average and (window.is_padded or count & (count - 1) or count > _MOST_POSITIONS):
        return f"a mean of {count} positions, or of fewer at borders"
    kernel = HalfPool(window, portable.channels, is_average)
    low, high = elements(limits_table(portable.limits), HALVES.dtype).tolist()
    image, output = layer.portable.arguments
    arguments = (
        image,
        ConstantArgument("geometry", kernel.geometry),
        ScalarArgument("low", low),
        ScalarArgument("high", high),
        output,
    )
    return KernelCall(kernel, arguments)
