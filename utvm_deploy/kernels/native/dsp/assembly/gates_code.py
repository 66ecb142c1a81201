"""The gates of a long short-term memory: requantization, logistic and tanh, two cells at a time.

What they compute is in ``kernels/c/utvm_gates16.h``. The routine leaves out what the reference's
numbers never need: saturation but at the ends, and special cases of 0. Products of fractions are
SMLABB, with 1/2 and further terms in the accumulator, and a shift.

An exponential is a polynomial, then a factor for each bit of the quarters. A bit that is 0 has the
factor 1, which is -1 here, since 2^15 is too large: signs alternate. Half a unit less then rounds
halves of negative products as the reference rounds the positive ones. The factors of the bits 4 to
6 are one: of two of them, the product is 0. Tests compare all inputs with the reference.

A cell has two words: the sums by input and by hidden state. The first becomes the result.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper

#: Words of ``scaling`` for a gate: five by input, then five by hidden state. They are the bits of a
#: left shift plus 1, the shift that leaves of a sign what is taken off, the offset, the multiplier
#: and the right shift.
GATE_WORDS = 10
_Function = Literal["logistic", "tanh", "tanh_cells"]
_PARAMETERS = "int32_t *pairs, int32_t count, const int32_t *scaling, const int32_t *table"
_HALF = 1 << 14
_FACTORS = (25520, 19875, 12055, 4435)
_LAST_FACTORS = (-32768, -600, -11, 0)
_CENTER, _THIRD = 28918, 10923
#: The third is the top half of a word whose whole is added, too. That adds twice the third before
#: a halving; the center's product with it is subtracted again.
_CONSTANTS = {
    "start": 4088,  # of the polynomial: 1/8, less a unit
    "fourth": _HALF + (1 << 16),
    "third": _THIRD << 16 | (_HALF + (1 << 15)),
    "center": _CENTER,
    "exponential": _HALF + (_CENTER << 15) - _CENTER * _THIRD,
    "slope": -15420,
    "inverse": _HALF + (23130 << 15),
    "error": (1 << 28) + _HALF - 1,
}
_ROWS_AT = 4 * len(_CONSTANTS)
_LAST_AT = _ROWS_AT + 2 * 4 * 16
_SETS = (("r4", "r5", "r6", "r7", "r8"), ("r9", "r10", "r11", "r12", "lr"))


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    end: Slot  # of the pairs
    scaling: Slot = words(GATE_WORDS)


def gates_table() -> Array:
    """int32 [constants; for 16 numbers of quarters the factors of bits 0 to 3; of bits 4 to 6]."""
    bits = np.arange(16)[:, None] >> np.arange(4) & 1
    factors = np.where(bits, -np.array(_FACTORS), -32768).astype(np.int16)
    rows = np.ascontiguousarray(factors).view(np.int32).reshape(-1)
    return np.array([*_CONSTANTS.values(), *rows, *_LAST_FACTORS], np.int32)


@code_cache
def gates_text(core: str, function: _Function) -> str:
    """The C text of ``utvm_FUNCTION_run``, ordered for a core; it does an even number of cells.

    ``tanh_cells`` takes values of which ``scaling`` has the number of integer bits less two. The
    others take sums.
    """
    a = Assembler(core, _PARAMETERS)
    a.enter(frame=_Slots)
    a.add("r1", "r0", "r1", "lsl #3")
    a.str("r1", _Slots.end)
    count = 1 if function == "tanh_cells" else GATE_WORDS
    for word in range(count):
        a.ldr("r1", at("r2", 4 * word))
        a.str("r1", _Slots.scaling.word(word))
    a.mov("r1", _HALF)
    a.sub("r2", "r1", 1)
    with a.loop("lo", aligned=True), a.scheduled(is_loop=True):
        for number, registers in enumerate(_SETS):
            _load_quarters(a, registers, 8 * number, function)
            _exponential(a, registers)
            _finish(a, registers, function)
        for number, registers in enumerate(_SETS):
            a.str(registers[1], at("r0", 8 * number))
        a.add("r0", "r0", 16)
        a.ldr("r4", _Slots.end)
        a.cmp("r0", "r4")
    a.leave()
    return a.c_function(f"utvm_{function}_run", _fallback(function), CONDITION)


def _fallback(function: _Function) -> str:
    if function == "tanh_cells":
        return helper("utvm_tanh_cells")
    call = "utvm_logistic16(value)" if function == "logistic" else "utvm_tanh16(value, 3)"
    return replaced(helper("utvm_gate_values"), ("utvm_activation(value)", call, 1))


def _load_quarters(
    a: Assembler, registers: tuple[str, ...], offset: int, function: _Function
) -> None:
    """Put a cell's value into the first register.

    Its top half is the value, the low one its magnitude in 2^-12 or less, less one unit.
    """
    k, x, y, z, p = registers
    a.ldr(x, at("r0", offset))
    if function != "tanh_cells":
        a.ldr(y, at("r0", offset + 4))
        _requantize(a, x, z, p, _Slots.scaling)
        a.ssat(x, 16, x)
        _requantize(a, y, z, p, _Slots.scaling.word(GATE_WORDS // 2))
        a.add(x, x, y)
        a.ssat(x, 16, x)
    a.asr(p, x, 31)
    a.eor(z, x, p)
    a.sub(p, p, z)
    if function == "tanh_cells":
        a.ldr(z, _Slots.scaling)
        a.lsl(p, p, z)
        a.mvn(k, p)
    elif function == "tanh":
        a.mvn(k, p, "lsl #1")
    else:
        a.mvn(k, p)
    a.usat(k, 16, k)
    a.orr(k, k, x, "lsl #16")


def _requantize(a: Assembler, one: str, offset: str, other: str, scaling: Slot) -> None:
    """The sum in ``one``, in place; its words come from slots.

    As ``shared_blocks.scale`` does it, but that a left shift comes first. Without a right shift,
    the sign has no effect: it is shifted out.
    """
    a.ldr(other, scaling)
    a.lsl(one, one, other)
    a.ldr(other, scaling.word(1))
    a.lsr(other, one, other)
    a.ldr(offset, scaling.word(2))
    a.sub(offset, offset, other)
    a.ldr(other, scaling.word(3))
    a.smmlar(one, one, other, offset)
    a.ldr(other, scaling.word(4))
    a.asr(one, one, other)


def _constant(a: Assembler, register: str, name: str) -> None:
    a.ldr(register, at("r3", 4 * list(_CONSTANTS).index(name)))


def _exponential(a: Assembler, registers: tuple[str, ...]) -> None:
    """The second register becomes -exp(-magnitude)."""
    k, x, y, z, p = registers
    a.lsl(p, k, 22)
    _constant(a, x, "start")
    a.sub(x, x, p, "lsr #19")
    a.smlabb(p, x, x, "r1")
    a.asr(y, p, 15)  # the square
    a.smlabb(p, y, x, "r1")
    a.asr(z, p, 15)  # the cube
    _constant(a, p, "fourth")
    a.smlabb(p, y, y, p)
    a.add(z, z, p, "asr #17")
    _constant(a, p, "third")
    a.smlabt(p, z, p, p)
    a.add(y, y, p, "asr #15")
    a.add(x, x, y, "asr #1")
    _constant(a, y, "center")
    _constant(a, p, "exponential")
    a.smlabb(p, x, y, p)
    a.asr(x, p, 15)
    a.ubfx(y, k, 10, 4)
    a.add(y, "r3", y, "lsl #3")
    a.ldr(z, at(y, _ROWS_AT))
    a.ldr(y, at(y, _ROWS_AT + 4))
    for factors in (z, y):
        a.smlabb(p, x, factors, "r2")
        a.asr(x, p, 15)
        a.smlabt(p, x, factors, "r1")
        a.asr(x, p, 15)
    a.ubfx(z, k, 14, 2)
    a.add(z, "r3", z, "lsl #2")
    a.ldr(z, at(z, _LAST_AT))
    a.smlabb(p, x, z, "r2")
    a.asr(x, p, 15)


def _finish(a: Assembler, registers: tuple[str, ...], function: _Function) -> None:
    """The second register becomes the result, by the inverse of 1 + exp(-magnitude)."""
    k, x, y, z, p = registers
    a.rsb(y, x, 1 << 15)
    a.lsr(y, y, 1)
    _constant(a, z, "slope")
    _constant(a, p, "inverse")
    a.smlabb(p, y, z, p)
    a.asr(x, p, 15)
    a.rsb(y, y, 0)
    for _ in range(3):
        _constant(a, p, "error")
        a.smlabb(p, y, x, p)
        a.asr(z, p, 15)
        a.smlabb(p, x, z, "r1")
        a.asr(p, p, 15)
        a.add(x, x, p, "lsl #2")
    a.asr(p, k, 31)
    if function == "logistic":
        a.ssat(x, 16, x, "lsl #1")
        a.eor(x, x, p, "lsr #17")
    else:
        a.sub(x, x, 1 << 13)
        a.ssat(x, 16, x, "lsl #2")
        a.eor(x, x, p)
        a.sub(x, x, p)
