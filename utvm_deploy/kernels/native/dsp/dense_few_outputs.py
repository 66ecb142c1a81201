"""The routine of fully connected layers with few outputs: all outputs at a time.

Inputs are widened where they are multiplied. So the routine needs no scratch, and only the last
word of inputs is filled up with weights of zero.

Layout:
    weights  int8 [four inputs][output][input]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.mnemonics import Slot, at
from utvm_deploy.kernels.native.dense import SCALE_WORDS, DenseRoutine, pack_scales
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import (
    function_text,
    load_last_bytes,
    scale_wide,
)
from utvm_deploy.kernels.native.layer_tables import DenseTables

#: As many as there are registers for.
MOST_OUTPUTS = 7
_QUAD = 4
#: Inputs of a turn of the loop.
_STEP = 16
_SUMS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10")
_FREE = ("r2", "r3", "r11", "r12", "lr")


class _Slots(StackFrame, size_bytes=20):
    """What a routine keeps on the stack."""

    last_turn: Slot  # the inputs of the last whole turn
    quads_end: Slot  # the inputs after the last whole word
    rest: Slot  # inputs from there on
    scaling: Slot


@dataclass(frozen=True)
class FewOutputs(DenseRoutine):
    """The routine, and what its code depends on."""

    outputs: int  # of the layer

    labels = ("dsp", "per_channel_dsp")
    parameters = """
        const int8_t *vector, const int8_t *weights, const int32_t *bias, const int32_t *scaling,
        const int32_t *limits, int8_t *output, int32_t inputs, int32_t outputs, int32_t scaling_step
    """

    @property
    def why(self) -> str:
        return f"DSP assembly, all {self.outputs} outputs in registers"

    @property
    def function(self) -> str:
        return f"utvm_narrow_{self.outputs}{'_channels' if self.per_channel else ''}"

    def text(self, core: str) -> str:
        a = Assembler(core, self.parameters)
        sums = _SUMS[: self.outputs]
        _begin(a, sums)
        a.cmp("r11", 0)
        with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            # Early, so that the branch is known to be taken or not in time.
            a.ldr("lr", _Slots.last_turn)
            a.cmp("r0", "lr")
            _multiply(a, sums, _STEP // _QUAD)
        a.ldr("r3", _Slots.quads_end)
        a.cmp("r0", "r3")
        with a.unless("hs"), a.loop("lo", aligned=True):
            with a.scheduled(is_loop=True):
                _multiply(a, sums, 1)
            a.ldr("r3", _Slots.quads_end)
            a.cmp("r0", "r3")
        a.ldr("r12", _Slots.rest)
        a.cmp("r12", 0)
        with a.unless("eq"):
            load_last_bytes(a, "r2", "r0", "r12", "r3")
            with a.scheduled():
                _multiply_word(a, sums, 0, ("r2", "r3"), ("r11", "r12", "lr"))
        with a.scheduled():
            a.ldr("r0", _Slots.scaling)
            offsets, step = (("r2", "r3"), ("r12", "lr")), SCALE_WORDS if self.per_channel else 0
            scale_wide(a, sums, "r0", ("r1",), offsets, "r11", step=step)
        _clamp(a, sums)
        for n, one in enumerate(sums):
            a.strb(one, at("r1", n))
        a.leave()
        return function_text(self.function, a, portable="utvm_narrow")

    def pack(self, layer: DenseTables) -> dict[str, Array]:
        filled = np.pad(layer.weights, ((0, 0), (0, -layer.weights.shape[1] % _QUAD)))
        quads = filled.reshape(self.outputs, -1, _QUAD).transpose(1, 0, 2)
        return {
            "weights": np.ascontiguousarray(quads).reshape(-1),
            "bias": layer.bias.astype(np.int32),
            **pack_scales(layer, self.outputs),
        }


def _begin(a: Assembler, sums: Sequence[str]) -> None:
    """Fill the slots and load the biases. r11 becomes the inputs of all whole turns."""
    a.enter(frame=_Slots)
    a.str("r3", _Slots.scaling)
    a.ldr("r12", a.stack_argument("inputs"))
    a.bic("r11", "r12", _STEP - 1)
    a.bic("r3", "r12", _QUAD - 1)
    a.and_("r12", "r12", _QUAD - 1)
    a.add("r3", "r3", "r0")
    a.add("lr", "r11", "r0")
    a.sub("lr", "lr", _STEP)
    a.strd("lr", "r3", _Slots.last_turn)
    a.str("r12", _Slots.rest)
    for n, one in enumerate(sums):
        a.ldr(one, at("r2", 4 * n))


def _multiply(a: Assembler, sums: Sequence[str], count: int) -> None:
    """Add the products of ``count`` words of inputs; r0 and r1 end after what was read."""
    free = [*_FREE, *_SUMS[len(sums) :]]
    # Two pairs of widened inputs in turn, where there are registers for them.
    pairs = [(free[0], free[1]), (free[2], free[3])][: 2 if len(free) > 6 else 1]
    for number in range(count):
        pair = pairs[number % len(pairs)]
        a.ldr(pair[0], at("r0", _QUAD * number))
        _multiply_word(a, sums, number, pair, free[2 * len(pairs) :])
    a.add("r0", "r0", _QUAD * count)
    a.add("r1", "r1", _QUAD * len(sums) * count)


def _multiply_word(
    a: Assembler, sums: Sequence[str], number: int, pair: tuple[str, str], ring: Sequence[str]
) -> None:
    """Add the products of the word of inputs in the first register of ``pair``.

    r1 points at the weights of the turn, those of ``number`` words come before. The registers of
    ``ring`` take the weights in turn. Overwrites the pair.
    """
    even, odd = pair
    a.sxtb16(odd, even, "ror #8")
    a.sxtb16(even, even)
    for place, total in enumerate(sums, number * len(sums)):
        low, high = (ring[(2 * place + n) % len(ring)] for n in range(2))
        a.ldr(low, at("r1", _QUAD * place))
        a.sxtb16(high, low, "ror #8")
        a.sxtb16(low, low)
        a.smlad(total, low, even, total)
        a.smlad(total, high, odd, total)


def _clamp(a: Assembler, sums: Sequence[str]) -> None:
    """Limit the outputs, unless the limits are those of int8. r1 becomes the output."""
    a.load(r0=a.stack_argument("limits"), r1=a.stack_argument("output"))
    a.ldrd("r2", "r3", at("r0"))
    a.cmp("r2", -128)
    with a.when("eq"):
        a.cmp("r3", 127)
    with a.unless("eq"):
        for one in sums:
            a.cmp(one, "r2")
            with a.when("lt"):
                a.mov(one, "r2")
            a.cmp(one, "r3")
            with a.when("gt"):
                a.mov(one, "r3")
