"""The products of the routine for six outputs: turns of its inner loop, for the assembly around it.

r0 points at the inputs, r1 one word before the weights. Weights of int4 are the halves of bytes:
SXTB16 widens both at once, and a mask leaves the lower one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.mnemonics import at, pre
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import CACHE_LINE_BYTES

OUTPUTS = 6
PAIR = 2
#: The registers of the sums, and of weights.
SUMS = ("r4", "r5", "r6", "r7", "r8", "r9")
WEIGHTS = ("r3", "r12", "lr")
_LOWER_HALVES = 0x000F000F


@dataclass(frozen=True)
class SixOutputsForm:
    """What the code depends on; the fields are those of ``SixOutputs``."""

    per_channel: bool
    step: int
    preload: bool
    tail: int
    is_direct: bool
    is_raw: bool = False  # sums of groups of six are stored, as the first of each two int32
    halves: bool = False  # the weights are int4


def multiply_six(a: Assembler, form: SixOutputsForm) -> None:
    """The products of a turn for six outputs. Weights are loaded two words ahead."""
    inputs, pairs, phases = ("r2", "r10"), OUTPUTS // PAIR, form.step // 2
    count = phases * pairs

    def load_inputs(phase: int) -> None:
        if not form.is_direct:
            a.ldr(inputs[phase % 2], at("r0", 4 * phase))
        elif phase % 2:
            _load_both(a, inputs, 2 * (phase - 1))

    load_inputs(0)
    load_inputs(1)
    if form.preload:
        # The cache lines that begin in the turn after the next.
        for offset in range(0, 4 * count, CACHE_LINE_BYTES):
            a.pld(at("r1", 8 * count + offset))
    for number in range(count):
        phase, pair = divmod(number, pairs)
        _multiply_pair(a, pair, WEIGHTS[number % 3], inputs[phase % 2])
        ahead = number + 2
        address = pre if ahead == count - 1 else at
        a.ldr(WEIGHTS[ahead % 3], address("r1", 4 * (ahead % count) + 4))
        if pair == pairs - 1 and phase + 2 < phases:
            load_inputs(phase + 2)


def multiply_rest(a: Assembler, form: SixOutputsForm, outputs: int) -> None:
    """The products of a turn for a pair or for the last group."""
    if form.tail:
        inputs = itertools.cycle(("r2", "r3"))
        weights = itertools.cycle((*SUMS[outputs:], "r10", "r12", "lr"))
    else:
        ring = ("r2", "r3", "r6", "r7", "r8", "r9", "r10", "r12", "lr")
        inputs = weights = itertools.cycle(ring)
    offsets = itertools.count(4, 4)

    def load_weights() -> str:
        register = next(weights)
        a.ldr(register, at("r1", next(offsets)))
        return register

    for quad in range(form.step // 4):
        xs: list[str] = []
        if form.is_direct:
            xs += next(inputs), next(inputs)
            _load_both(a, (xs[0], xs[1]), 4 * quad)
        for phase in range(2):
            if not form.is_direct:
                xs.append(next(inputs))
                a.ldr(xs[phase], at("r0", 8 * quad + 4 * phase))
            for pair in range(outputs // PAIR):
                _multiply_pair(a, pair, load_weights(), xs[phase])
        if outputs % PAIR:
            total, even, odd = SUMS[outputs - 1], load_weights(), next(weights)
            a.sxtb16(odd, even, "ror #8")
            a.sxtb16(even, even)
            a.smlad(total, even, xs[0], total)
            a.smlad(total, odd, xs[1], total)
    a.add("r1", "r1", outputs * form.step)


def multiply_halves(a: Assembler, form: SixOutputsForm, outputs: int) -> None:
    """The products of a turn with weights of int4; those of six are loaded a word ahead."""
    pairs, is_ahead = outputs // PAIR, outputs == OUTPUTS
    count = form.step // 4 * pairs
    inputs = "r2", "r10"
    ring = WEIGHTS if is_ahead else (*WEIGHTS, *SUMS[outputs:])
    if form.preload and is_ahead:
        for offset in range(0, 4 * count, CACHE_LINE_BYTES):
            a.pld(at("r1", 8 * count + offset))
    for number in range(count):
        quad, pair = divmod(number, pairs)
        if pair == 0 and form.is_direct:
            _load_both(a, inputs, 4 * quad)
        elif pair == 0:
            a.ldr(inputs[0], at("r0", 8 * quad))
            a.ldr(inputs[1], at("r0", 8 * quad + 4))
        word, other, ahead = (ring[(2 * number + n) % len(ring)] for n in range(3))
        if is_ahead:
            address = pre if number == count - 2 else at
            a.ldr(ahead, address("r1", 4 * ((number + 1) % count) + 4))
        else:
            a.ldr(word, at("r1", 4 * number + 4))
        a.sxtb16(other, word)
        a.sxtb16(word, word, "ror #8")
        low, high = SUMS[PAIR * pair : PAIR * pair + PAIR]
        for weights, given in zip((other, word), inputs, strict=True):
            a.smlad(high, weights, given, high)
            a.and_(weights, weights, _LOWER_HALVES)
            a.smlad(low, weights, given, low)
    if not is_ahead:
        a.add("r1", "r1", 4 * count)


def _load_both(a: Assembler, inputs: tuple[str, str], offset: int) -> None:
    """Both phases of four inputs, widened."""
    even, odd = inputs
    a.ldr(odd, at("r0", offset))
    a.sxtb16(even, odd)
    a.sxtb16(odd, odd, "ror #8")


def _multiply_pair(a: Assembler, pair: int, weights: str, inputs: str) -> None:
    """The products of a word of weights of two outputs; overwrites the weights."""
    first, second = SUMS[PAIR * pair : PAIR * pair + PAIR]
    a.smlad(first, weights, inputs, first)
    a.sxtb16(weights, weights, "ror #8")
    a.smlad(second, weights, inputs, second)
