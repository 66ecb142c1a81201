"""QUANTIZE of float32 to int8, and DEQUANTIZE, by a floating-point unit.

QUANTIZE takes the product with the scale's reciprocal. The reciprocal, the product and the
reference's quotient each have a relative error of at most 2^-24. So product and quotient are less
than 2^-22 of the product apart. Beyond 512, both saturate. Up to there, this is below 2^-13: 8
steps of 2^-16, in which VCVT converts the product, rounded towards zero. VCVT saturates what is
beyond 32 bits, and QADD the sum with the offset.

So a product farther than ``MARGIN`` steps from a half rounds as the quotient. The others are
divided, and so are NaN and infinity, which a product with 0 finds: that of the sum of four.
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.isa.assembler import Assembler, Label
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION as DSP_CONDITION
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.fpu.shared_blocks import CONDITION

#: Steps of 2^-16: more than the bound above and one for the conversion; a power of two.
MARGIN = 16
_LOW = ("r10", "r11", "r2", "lr")
_BYTES_PARAMETERS = """
    const int8_t *input, float *output, const float *scale, int32_t zero_point, int32_t eights
"""
_PARAMETERS = """
    const float *input, int8_t *output, const float *reciprocal, int32_t offset, int32_t *fours
"""


def build_quantize(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    if layer.result.dtype != "int8":
        return f"its result is of {layer.result.dtype}"
    quantization, least = quantization_of(layer.result), np.finfo(np.float32).tiny
    scale = np.float32(quantization.scale)
    if not least <= scale <= 1 / least:
        return f"the scale {scale:g} has no reciprocal in float32"
    given: Parameters = {
        "scale": np.array([scale, np.float32(1) / scale], np.float32),
        "zero_point": quantization.zero_point,
    }
    count = element_count(layer.result)
    kernel = CRoutine(
        "utvm_quantize_floats",
        parameters_of(layer, given),
        (count,),
        name=f"quantize_{count}_fpu",
        why="product with the scale's reciprocal, four at a time; divided near a half",
        c_texts=(),
        assembly=quantize_texts,
    )
    return layer.call(kernel, given)


def build_dequantize(layer: Layer, wish: Wish) -> KernelCall:
    """The call instead of the portable one."""
    quantization, count = quantization_of(layer.source), element_count(layer.source)
    given: Parameters = {
        "scale": np.array([quantization.scale], np.float32),
        "zero_point": quantization.zero_point,
    }
    kernel = CRoutine(
        "utvm_dequantize_bytes",
        parameters_of(layer, given),
        (count,),
        name=f"dequantize_{count}_fpu",
        why="float32 multiplication, eight at a time",
        c_texts=(),
        assembly=dequantize_texts,
    )
    return layer.call(kernel, given)


@code_cache
def quantize_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_quantize_floats``, ordered for a core."""
    a, done = Assembler(core, _PARAMETERS), Label()
    a.enter(("r4-r9", "lr"))
    a.ldr("r12", a.stack_argument("fours"))
    a.ldr("lr", at("r12"))
    a.vldr("s15", at("r2"))
    a.mov("r2", 2 * MARGIN << 16 | 2 * MARGIN)
    a.mov("r12", 0)
    a.vmov("s14", "r12")
    with a.loop("gt", aligned=True):
        with a.scheduled():
            _quantize_four(a)
        a.b(done, "ne")
        a.subs("lr", "lr", 1)
        a.str("r4", post("r1", 4))
    a.place(done)
    a.ldr("r12", a.stack_argument("fours"))
    a.str("lr", at("r12"))
    a.leave()
    unused = "(void)input, (void)output, (void)reciprocal, (void)offset, (void)fours;\n"
    condition = f"{CONDITION} && {DSP_CONDITION}"
    driver = replaced(family_text("fpu", "utvm_quantize_floats"), ("MARGIN", str(MARGIN), 1))
    return a.c_function("utvm_quantize_fours", unused, condition), driver


def _quantize_four(a: Assembler) -> None:
    """r4 becomes the bytes of four elements at r0, which moves on; flags: eq if they are right."""
    values, sums = ("s0", "s1", "s2", "s3"), ("r4", "r5", "r6", "r7")
    for number, one in enumerate(values):
        a.vldr(one, at("r0", 4 * number))
        a.vmul_f32(one, one, "s15")
    a.add("r0", "r0", 16)
    a.vadd_f32("s4", "s0", "s1")
    a.vadd_f32("s5", "s2", "s3")
    a.vadd_f32("s4", "s4", "s5")
    a.vmul_f32("s4", "s4", "s14")
    a.vmov("r9", "s4")
    for one, total in zip(values, sums, strict=True):
        a.vcvt_s32_f32(one, one, 16)
        a.vmov(total, one)
        a.qadd(total, total, "r3")
    a.pkhbt("r8", "r4", "r5", "lsl #16")
    a.pkhbt("r12", "r6", "r7", "lsl #16")
    a.uqsub16("r8", "r2", "r8")
    a.uqsub16("r12", "r2", "r12")
    a.orr("r8", "r8", "r9", "lsl #1")
    a.orr("r8", "r8", "r12")
    for number, total in enumerate(sums):
        a.ssat(total, 8, total, "asr #16")
        if number:
            a.bfi("r4", total, 8 * number, 8)
    a.cmp("r8", 0)


@code_cache
def dequantize_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_dequantize_bytes``, ordered for a core."""
    a = Assembler(core, _BYTES_PARAMETERS)
    a.enter(("r4-r11", "lr"))
    a.ldr("r12", a.stack_argument("eights"))
    a.vldr("s15", at("r2"))
    a.rsb("r3", "r3", 0)
    with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
        for word, register in enumerate(("r8", "r9")):
            a.ldr(register, at("r0", 4 * word))
            for byte, total in enumerate(("r4", "r5", "r6", "r7") if word else _LOW):
                one = f"s{4 * word + byte}"
                a.sxtab(total, "r3", register, *((f"ror #{8 * byte}",) if byte else ()))
                a.vmov(one, total)
                a.vcvt_f32_s32(one, one)
                a.vmul_f32(one, one, "s15")
        for number in range(8):
            a.vstr(f"s{number}", at("r1", 4 * number))
        a.add("r0", "r0", 8)
        a.add("r1", "r1", 32)
        a.subs("r12", "r12", 1)
    a.leave()
    body = family_text("fpu", "utvm_dequantize_eights")
    condition = f"{CONDITION} && {DSP_CONDITION}"
    driver = family_text("fpu", "utvm_dequantize_bytes")
    return a.c_function("utvm_dequantize_eights", body, condition), driver
