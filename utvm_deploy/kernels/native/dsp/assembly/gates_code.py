"""The gates of a long short-term memory: requantization, logistic and tanh, three cells at a time.

What they compute is in ``kernels/c/utvm_gates16.h``. The routine leaves out what the reference's
numbers never need: saturation but at the ends, and special cases of 0. A product of fractions is an
SMMULR or SMMLAR where one factor can be given 2^17 times. Such a factor F of at least 2^14 is
F 2^17 - 2^32, and the other factor is the accumulator. Other products are SMLABB, with 1/2 and
further terms in the accumulator, and a shift.

An exponential is a polynomial, then a factor for each bit of the quarters. A bit that is 0 adds 0
times the value to itself. The factors of the bits 4 to 6 are one: of two of them, the product is 0.
An inverse is twice a number, so that its product by -2^16 times another one has 2^17. That factor
is one unit less, by which halves are rounded away from 0. Tests compare all inputs with the
reference.

A cell has two words: the sums by input and by hidden state. The first becomes the result, and holds
what the cell needs again in between. After the gates, the last routine makes new cells and the
hidden state of them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Memory, Slot, at
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper

#: Words of ``scaling`` for a gate: five by input, then five by hidden state. They are the bits of a
#: left shift plus 1, the shift that leaves of a sign what is taken off, the offset, the multiplier
#: and the right shift.
GATE_WORDS = 10
#: Words for the cells. Their integer bits less two come first, then half a unit and the shift of
#: what is added, then 2^31 - 1 and 2^31, less the largest magnitude. The hidden state has a
#: multiplier, half a unit, a right shift and a zero point.
CELL_WORDS = 9
#: Cells at a time; a gate has a multiple of them.
CELLS = 3
_Function = Literal["logistic", "tanh", "cells"]
_PARAMETERS = "int32_t *pairs, int32_t count, const int32_t *scaling, const int32_t *table"
_CELL_PARAMETERS = f"{_PARAMETERS}, int32_t *cells, int8_t *hidden"
_HALF = 1 << 14
_FACTORS = (25520, 19875, 12055, 4435)
#: The factors of bits 4 to 6; -1 instead of 0, which is the sign of a bit that is 1.
_LAST_FACTORS = (0, -600 << 17, -11 << 17, -1)
#: They follow the last factors.
_CONSTANTS = {
    "fourth": _HALF + (1 << 16),
    "third": 10923 << 17,
    "center": (28918 << 17) - (1 << 32),
    "slope": -15420 << 17,
}
_CONSTANTS_AT = 4 * len(_LAST_FACTORS)
_ROWS_AT = _CONSTANTS_AT + 4 * len(_CONSTANTS)
_SETS = (("r4", "r5", "r6", "r7"), ("r8", "r9", "r10", "r11"), ("r12", "lr", "r1", "r2"))
_Set = tuple[str, str, str, str]


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    end: Slot  # of the pairs
    gate: Slot  # the bytes of a gate
    cells: Slot
    hidden: Slot
    scaling: Slot = words(GATE_WORDS)


def gates_table() -> Array:
    """int32 [factors of bits 4 to 6; constants; for 16 numbers of quarters those of bits 0 to 3].

    Factors below 2^14 are negative.
    """
    bits = np.arange(16)[:, None] >> np.arange(4) & 1
    large = [(one << 17) - (1 << 32) if one >= _HALF else -one << 17 for one in _FACTORS]
    rows = (bits * np.array(large)).astype(np.int32)
    return np.array([*_LAST_FACTORS, *_CONSTANTS.values(), *rows.reshape(-1)], np.int32)


@code_cache
def gates_text(core: str, function: _Function) -> str:
    """The C text of ``utvm_FUNCTION_run``, ordered for a core; it does a multiple of ``CELLS``.

    ``cells`` takes the results of the others, which follow each other: input, forget, cell, output.
    """
    is_last = function == "cells"
    a = Assembler(core, _CELL_PARAMETERS if is_last else _PARAMETERS)
    a.enter(frame=_Slots)
    a.lsl("r1", "r1", 3)
    a.str("r1", _Slots.gate)
    a.add("r1", "r0", "r1")
    a.str("r1", _Slots.end)
    if is_last:
        a.copy_arguments("r4", _Slots, "cells", "hidden")
    places = [at("r0", 8 * number) for number in range(CELLS)]
    with a.scheduled():
        for word in range(CELL_WORDS if is_last else GATE_WORDS):
            register = f"r{4 + word % 8}"
            a.ldr(register, at("r2", 4 * word))
            a.str(register, _Slots.scaling.word(word))
    with a.loop("lo", aligned=True), a.scheduled(is_loop=True):
        if is_last:
            _make_cells(a)
        else:
            _requantize(a, 0)
            _requantize(a, 1)
            _add(a)
        # No load moves after a store: so the stores of all cells stand together.
        for registers, place in zip(_SETS, places, strict=True):
            _load_quarters(a, registers, function)
            a.str(registers[0], place)
        for registers, place in zip(_SETS, places, strict=True):
            _polynomial(a, registers)
            _multiply_by_factors(a, registers, place)
            _invert(a, registers)
            a.ldr(registers[0], place)
            _finish(a, registers, function)
        if is_last:
            _show(a)
        else:
            for registers, place in zip(_SETS, places, strict=True):
                a.str(registers[2], place)
        a.add("r0", "r0", 8 * CELLS)
        a.ldr("r4", _Slots.end)
        a.cmp("r0", "r4")
    a.leave()
    return a.c_function(f"utvm_{function}_run", _fallback(function), CONDITION)


def _fallback(function: _Function) -> str:
    if function == "cells":
        return helper("utvm_cells")
    call = "utvm_logistic16(value)" if function == "logistic" else "utvm_tanh16(value, 3)"
    return replaced(helper("utvm_gate_values"), ("utvm_activation(value)", call, 1))


def _requantize(a: Assembler, source: int) -> None:
    """Put the requantized sums by input (0) or hidden state (1) into registers 1 or 0 of all sets.

    As ``shared_blocks.scale`` does it, but that a left shift comes first. Without a right shift,
    the sign has no effect: it is shifted out.
    """
    sums = [one[1 - source] for one in _SETS]
    others = [one[2] for one in _SETS]
    scaling = [_Slots.scaling.word(GATE_WORDS // 2 * source + n) for n in range(5)]
    left, sign, offset = (one[3] for one in _SETS)
    for number, one in enumerate(sums):
        a.ldr(one, at("r0", 8 * number + 4 * source))
    a.ldr(left, scaling[0])
    for one in sums:
        a.lsl(one, one, left)
    a.ldr(sign, scaling[1])
    a.ldr(offset, scaling[2])
    for one, other in zip(sums, others, strict=True):
        a.lsr(other, one, sign)
        a.sub(other, offset, other)
    multiplier, right = left, sign
    a.ldr(multiplier, scaling[3])
    for one, other in zip(sums, others, strict=True):
        a.smmlar(one, one, multiplier, other)
    a.ldr(right, scaling[4])
    for one in sums:
        a.asr(one, one, right)


def _add(a: Assembler) -> None:
    """The second register of each set becomes a gate's value: the sum of both parts."""
    for other, value, _, _ in _SETS:
        a.ssat(value, 16, value)
        a.add(value, value, other)
        a.ssat(value, 16, value)


def _make_cells(a: Assembler) -> None:
    """The second register of each set becomes the new cell, which is stored."""
    (_, _, gate, made), (_, _, cells, half), (_, _, forget, shift) = _SETS
    a.load(**{gate: _Slots.gate, cells: _Slots.cells})
    a.add(forget, "r0", gate)
    for number, (k, x, _, _) in enumerate(_SETS):
        a.ldr(k, at(forget, 8 * number))
        a.ldr(x, at(cells, 4 * number))
    for k, x, _, _ in _SETS:
        a.smulbb(k, k, x)
        a.add(k, k, k, "asr #31")
        a.add(k, k, _HALF)
    a.add(made, "r0", gate, "lsl #1")
    for number, (_, x, y, _) in enumerate(_SETS):
        a.ldr(x, at("r0", 8 * number))
        a.ldr(y, at(made, 8 * number))
    a.load(**{half: _Slots.scaling.word(1), shift: _Slots.scaling.word(2)})
    for _, x, y, _ in _SETS:
        a.smulbb(x, x, y)
        a.add(x, x, x, "asr #31")
        a.add(x, x, half)
    above, below = made, half
    a.load(**{above: _Slots.scaling.word(3), below: _Slots.scaling.word(4)})
    for k, x, _, _ in _SETS:
        a.asr(x, x, shift)
        a.add(x, x, k, "asr #15")
        a.ssat(x, 16, x)
        a.qadd(x, x, above)
        a.sub(x, x, above)
        a.qsub(x, x, below)
        a.add(x, x, below)
    a.ldr(cells, _Slots.cells)
    a.add(gate, cells, 4 * CELLS)
    a.str(gate, _Slots.cells)
    for number, (_, x, _, _) in enumerate(_SETS):
        a.str(x, at(cells, 4 * number))


def _show(a: Assembler) -> None:
    """Store the hidden state of three cells, whose tanh is in the third register of each set."""
    (multiplier, output, _, _), (half, zero_point, _, _), (right, hidden, _, _) = _SETS
    a.ldr(multiplier, _Slots.gate)
    a.add(output, "r0", multiplier, "lsl #2")
    a.sub(output, output, multiplier)
    for number, (_, _, _, z) in enumerate(_SETS):
        a.ldr(z, at(output, 8 * number))
    for number, register in enumerate((multiplier, half, right, zero_point), CELL_WORDS - 4):
        a.ldr(register, _Slots.scaling.word(number))
    for _, _, y, z in _SETS:
        a.smulbb(y, y, z)
        a.add(z, half, y, "asr #31")
        a.add(y, y, y)
        a.smmlar(y, y, multiplier, z)
        a.asr(y, y, right)
        a.add(y, y, zero_point)
        a.ssat(y, 8, y)
    a.ldr(hidden, _Slots.hidden)
    a.add(output, hidden, CELLS)
    a.str(output, _Slots.hidden)
    for number, (_, _, y, _) in enumerate(_SETS):
        a.strb(y, at(hidden, number))


def _load_quarters(a: Assembler, registers: _Set, function: _Function) -> None:
    """From the value in the second register, put what the cell needs into the first one.

    Its top half is the value, the low one its magnitude in 2^-12 or less, less one unit.
    """
    k, x, y, z = registers
    a.asr(z, x, 31)
    a.eor(y, x, z)
    a.sub(z, z, y)
    if function == "cells":
        a.ldr(y, _Slots.scaling)
        a.lsl(z, z, y)
        a.mvn(k, z)
    elif function == "tanh":
        a.mvn(k, z, "lsl #1")
    else:
        a.mvn(k, z)
    a.usat(k, 16, k)
    a.orr(k, k, x, "lsl #16")


def _constant(a: Assembler, register: str, name: str) -> None:
    a.ldr(register, at("r3", _CONSTANTS_AT + 4 * list(_CONSTANTS).index(name)))


def _polynomial(a: Assembler, registers: _Set) -> None:
    """The second register becomes the exponential of the part of a quarter."""
    k, x, y, z = registers
    a.lsl(y, k, 22)
    a.mov(x, 4088)  # 1/8, less a unit
    a.sub(x, x, y, "lsr #19")
    a.lsl(z, x, 17)
    a.smmulr(y, x, z)  # the square
    a.smmulr(z, y, z)  # the cube
    a.add(x, x, 1 << 15)
    _constant(a, k, "fourth")
    a.smlabb(k, y, y, k)
    a.add(z, z, k, "asr #17")
    _constant(a, k, "third")
    a.smmlar(y, z, k, y)
    a.mov(k, 1 << 31)
    a.smmlsr(x, y, k, x)  # half of it, and the terms before
    _constant(a, k, "center")
    a.smmlar(x, x, k, x)


def _multiply_by_factors(a: Assembler, registers: _Set, place: Memory) -> None:
    """The second register becomes the whole exponential, by the number of quarters in memory."""
    _, x, y, z = registers
    a.ldr(y, place)
    a.ubfx(y, y, 10, 4)
    a.add(y, "r3", y, "lsl #4")
    for number, factor in enumerate(_FACTORS):
        a.ldr(z, at(y, _ROWS_AT + 4 * number))
        if factor >= _HALF:
            a.smmlar(x, x, z, x)
        else:
            _multiply_by_small(a, registers)
    a.ldr(y, place)
    a.ubfx(y, y, 14, 2)
    a.ldr(z, at("r3", f"{y}, lsl #2"))
    _multiply_by_small(a, registers)


def _multiply_by_small(a: Assembler, registers: _Set) -> None:
    """The second register times the negative factor in the fourth one, if that is not 0."""
    k, x, _, z = registers
    a.bic(k, x, z, "asr #31")
    a.smmlsr(x, x, z, k)


def _invert(a: Assembler, registers: _Set) -> None:
    """The third register becomes four times the inverse of 1 + the second one."""
    k, x, y, z = registers
    a.add(x, x, 1 << 15)
    a.lsr(x, x, 1)
    _constant(a, k, "slope")
    a.mov(z, 23130)
    a.smmlar(y, x, k, z)
    a.mvn(x, x, "lsl #16")
    a.lsl(y, y, 1)
    for _ in range(3):
        a.mov(z, 1 << 13)
        a.smmlar(z, x, y, z)
        a.lsl(z, z, 16)
        a.smmulr(z, y, z)
        a.add(y, y, z, "lsl #3")


def _finish(a: Assembler, registers: _Set, function: _Function) -> None:
    """The third register becomes the result, with the sign of the first one."""
    k, _, y, z = registers
    a.asr(z, k, 31)
    if function == "logistic":
        a.ssat(y, 16, y)
        a.eor(y, y, z, "lsr #17")
    else:
        a.sub(y, y, 1 << 14)
        a.ssat(y, 16, y, "lsl #1")
        a.eor(y, y, z)
        a.sub(y, y, z)
