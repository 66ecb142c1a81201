"""The routine of fully connected layers: six outputs at a time, each weight is read once.

The routine widens the vector to int16 first, for all outputs. Without scratch, it widens each word
again for each group of outputs (``is_direct``). A pair of outputs shares words of
weights, and one SXTB16 for each word. The halfwords of a word are 256 b + a + 128, where a and b
are weights of the two outputs. Multiplied as they are, they sum up to 256 B + A + 128 X: A and B
are the wanted sums, X is the sum of the inputs. The high bytes, extracted, give B; A is the rest.
Outputs beyond the groups of six are computed in pairs, or together as one last group. An odd output
of the last group is multiplied by itself.

Layouts, for input k = 4 quad + 2 lane + phase:
    wide     int16 [quad][phase][lane], zeros beyond the inputs
    weights  int8  [group of six outputs, then of two][quad][phase][pair][lane][a + 128, b]
             a last group has the odd output's [lane][phase] behind the pairs of each quad
    bias     int32 [pair][bias of a + 256 bias of b, bias of b]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.isa.assembler import Assembler, Frame, Label, words
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post, pre
from utvm_deploy.kernels.native.dense import SCALE_WORDS, DenseRoutine, pack_scales
from utvm_deploy.kernels.native.dsp.code import (
    CACHE_LINE_BYTES,
    clamp,
    helper,
    load_last_bytes,
    scale_wide,
    store_limits,
)
from utvm_deploy.kernels.native.layer_tables import DenseTables

OUTPUTS = 6
PAIR = 2
#: Inputs of a turn of the inner loop; the vector is filled up with zeros to a multiple of them.
STEPS = (16, 8)
#: The inner loop loads two words of weights beyond those that it needs.
_SLACK_BYTES = 8
_PARAMETERS = """
    const int8_t *vector, int16_t *wide, const int8_t *weights, const int32_t *bias,
    const int32_t *scaling, int32_t scaling_step, const int32_t *limits, int8_t *output,
    int32_t inputs, int32_t padded, int32_t outputs
"""
_DIRECT_PARAMETERS = """
    const int8_t *vector, const int8_t *weights, const int32_t *bias, const int32_t *scaling,
    int32_t scaling_step, const int32_t *limits, int8_t *output, int32_t padded, int32_t outputs
"""
#: Where the inputs are that the routine's C reads in the order of the weights.
_PLACE = "i / 4 * 4 + i % 2 * 2 + i % 4 / 2"
_WIDENING = """for (int32_t k = 0; k < padded; k++) {
    wide[k / 4 * 4 + k % 2 * 2 + k % 4 / 2] = (int16_t)(k < inputs ? vector[k] : 0);
}
"""
_SUMS = ("r4", "r5", "r6", "r7", "r8", "r9")
_WEIGHTS = ("r3", "r12", "lr")


class _Slots(Frame):
    """What a routine keeps on the stack."""

    bias: Slot  # of the next group
    wide: Slot
    correction: Slot  # 128 times the sum of the inputs
    output: Slot  # where the next group goes
    left: Slot  # outputs after this group
    low: Slot
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    scaling: Slot  # of the next group
    only_scale: Slot = words(SCALE_WORDS)


@dataclass(frozen=True)
class SixOutputs(DenseRoutine):
    """The routine, and what its code depends on."""

    step: int  # inputs of a turn of the inner loop
    preload: bool  # weights are preloaded into the cache
    tail: int = 0  # outputs of the last group; 0: what does not fill six is done in pairs
    is_direct: bool = False  # no scratch; the inputs are a multiple of ``step``

    labels = ("dsp", "per_channel_dsp")

    @property
    def parameters(self) -> str:
        return _DIRECT_PARAMETERS if self.is_direct else _PARAMETERS

    @property
    def why(self) -> str:
        how = ", no scratch" if self.is_direct else ""
        return f"DSP assembly, {OUTPUTS} outputs in registers, weights streamed once{how}"

    @property
    def function(self) -> str:
        channels = "_channels" if self.per_channel else ""
        tail = f"_and_{self.tail}" if self.tail else ""
        how = f"{'_preload' if self.preload else ''}{'_direct' if self.is_direct else ''}"
        return f"utvm_dense_{self.step}{channels}{how}{tail}"

    def text(self, core: str) -> str:
        a = Assembler(core, self.parameters)
        if self.is_direct:
            _begin_direct(a)
            a.sub("r1", "r1", 4)  # the inner loop's offsets count from one word before
        else:
            _begin(a)
            _widen(a)
            a.sub("r1", "r2", 4)
        a.lsl("r4", "r4", 7)
        a.str("r4", _Slots.correction)
        a.ldr("r9", _Slots.left)
        sixes, rest = _Group(a, self, OUTPUTS), _Group(a, self, self.tail or PAIR)
        _compute_sixes(a, sixes)
        compute_rest = _compute_tail if self.tail else _compute_pairs
        compute_rest(a, rest)
        a.leave()
        sixes.place_clamping()
        rest.place_clamping()
        portable = helper("utvm_dense_tail" if self.tail else "utvm_dense")
        if self.is_direct:
            portable = replaced(portable, (_WIDENING, "", 1), ("wide[i]", f"vector[{_PLACE}]", 1))
        return a.c_function(self.function, portable, CONDITION)

    def padded(self, inputs: int) -> int:
        return -(-inputs // self.step) * self.step

    def scratch(self, inputs: int) -> tuple[Operand, ...]:
        if self.is_direct:
            return ()
        return (Operand("wide", (self.padded(inputs),), "int16"),)

    def pack(self, layer: DenseTables) -> dict[str, Array]:
        pairs = -(-layer.bias.size // PAIR)
        bias = np.zeros((pairs, PAIR), dtype=np.int64)
        bias.reshape(-1)[: layer.bias.size] = layer.bias
        bias[:, 0] += 256 * bias[:, 1]
        return {
            "weights": self._pack_weights(layer.weights),
            "bias": bias.reshape(-1).astype(np.uint32).view(np.int32),
            **pack_scales(layer, PAIR * pairs),
        }

    def _pack_weights(self, weights: Array) -> Array:
        """[outputs, inputs] -> the layout above, with slack."""
        outputs, inputs = weights.shape
        missing = 0 if self.tail else outputs % PAIR
        full = np.pad(weights, ((0, missing), (0, self.padded(inputs) - inputs)))
        groups = outputs // OUTPUTS
        sixes, pairs, odd = np.split(full, [OUTPUTS * groups, len(full) // PAIR * PAIR])
        rest = _paired(pairs, 1 if self.tail else len(pairs) // PAIR)
        if self.tail % PAIR:
            rest = np.concatenate([rest, odd.reshape(-1, 4)], axis=1)
        slack = np.zeros(_SLACK_BYTES, dtype=np.int8)
        return np.concatenate([_paired(sixes, groups).reshape(-1), rest.reshape(-1), slack])


def _paired(rows: Array, groups: int) -> Array:
    """[outputs, inputs] -> [group and quad, weights of the quad], in the layout above."""
    pairs, quads = len(rows) // max(groups, 1) // PAIR, rows.shape[1] // 4
    # group, pair, side, quad, lane, phase -> group, quad, phase, pair, lane, side
    split = rows.reshape(groups, pairs, 2, quads, 2, 2).transpose(0, 3, 5, 1, 4, 2)
    flipped: Array = split ^ np.array([-128, 0], np.int8)  # a + 128
    return flipped.reshape(groups * quads, 8 * pairs)


def _begin(a: Assembler) -> None:
    """Put the arguments into their slots, or where ``_widen`` expects them."""
    a.enter(frame=_Slots)
    a.store(r1=_Slots.wide, r3=_Slots.bias)
    a.load(r4=a.stack_argument("scaling"))
    _keep_arguments(a)
    a.load(r3=a.stack_argument("inputs"), r11=a.stack_argument("padded"))
    a.add("r11", "r1", "r11", "lsl #1")


def _begin_direct(a: Assembler) -> None:
    """The same without scratch; r4 becomes the sum of the inputs, r11 their end."""
    a.enter(frame=_Slots)
    a.store(r0=_Slots.wide, r2=_Slots.bias)
    a.mov("r4", "r3")
    _keep_arguments(a)
    a.load(r11=a.stack_argument("padded"))
    a.add("r11", "r0", "r11")
    a.mov("r10", 0x00010001)
    a.mov("r4", 0)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for word, other in (("r5", "r6"), ("r7", "r8")):
            a.ldr(word, post("r0", 4))
            a.sxtb16(other, word, "ror #8")
            a.sxtb16(word, word)
            a.smlad("r4", word, "r10", "r4")
            a.smlad("r4", other, "r10", "r4")
        a.cmp("r0", "r11")


def _keep_arguments(a: Assembler) -> None:
    """Put what r4 points to, scales, and the arguments on the stack into slots."""
    a.store(r4=_Slots.scaling)
    a.load(r5=a.stack_argument("limits"))
    a.load(r6=a.stack_argument("output"), r7=a.stack_argument("outputs"))
    a.store(r6=_Slots.output, r7=_Slots.left)
    a.ldrsb("r8", at("r5"))
    a.ldrsb("r9", at("r5", 4))
    a.ldm("r4", ("r4-r7",))
    a.strd("r4", "r5", _Slots.only_scale)
    a.strd("r6", "r7", _Slots.only_scale.word(2))
    store_limits(a, _Slots.low, _Slots.clamps)


def _widen(a: Assembler) -> None:
    """Widen r3 bytes from r0 on, to r1; zeros follow up to r11. r4 becomes the sum."""
    a.mov("r10", 0x00010001)
    a.mov("r4", 0)
    a.subs("r3", "r3", 16)
    _widen_words(a, (("r5", "r6"), ("r7", "r8"), ("r9", "r12"), ("r5", "r6")))
    a.adds("r3", "r3", 12)
    _widen_words(a, (("r5", "r6"),))
    a.adds("r3", "r3", 4)
    with a.unless("eq"):
        load_last_bytes(a, "r5", "r0", "r3", "r6")
        with a.scheduled():
            _widen_word(a, "r5", "r6", 0)
            a.add("r1", "r1", 8)
    a.mov("r5", 0)
    compare = Label()
    a.b(compare)
    with a.loop("lo"):
        a.str("r5", post("r1", 4))
        a.place(compare)
        a.cmp("r1", "r11")


def _widen_words(a: Assembler, pairs: Sequence[tuple[str, str]]) -> None:
    """A loop over as many words as there are pairs of registers; flags: lt if none are left."""
    with a.unless("lt"), a.loop("ge", aligned=True), a.scheduled(is_loop=True):
        for number, pair in enumerate(pairs):
            a.ldr(pair[0], post("r0", 4))
            _widen_word(a, *pair, 8 * number)
        a.add("r1", "r1", 8 * len(pairs))
        a.subs("r3", "r3", 4 * len(pairs))


def _widen_word(a: Assembler, word: str, other: str, offset: int) -> None:
    """Store four bytes as halfwords at r1 + ``offset``, and add them to r4."""
    a.sxtb16(other, word, "ror #8")
    a.sxtb16(word, word)
    a.str(word, at("r1", offset))
    a.str(other, at("r1", offset + 4))
    a.smlad("r4", word, "r10", "r4")
    a.smlad("r4", other, "r10", "r4")


class _Group:
    """The code of a group of outputs, which become int8 in the registers of their sums."""

    def __init__(self, a: Assembler, form: SixOutputs, outputs: int) -> None:
        self.a, self.form, self.outputs = a, form, outputs
        self.sums = _SUMS[:outputs]
        self.pairs = list(zip(self.sums[::2], self.sums[1::2], strict=False))
        self._clamping, self._clamped = Label(), Label()

    def compute(self) -> None:
        """Sum up, requantize and clamp; then a pair is a halfword. r0 becomes the output."""
        a, form = self.a, self.form
        with a.scheduled():
            self._start()
        with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            if self.outputs == OUTPUTS:
                _multiply_six(a, form)
            else:
                _multiply_rest(a, form, self.outputs)
            a.add("r0", "r0", form.step if form.is_direct else 2 * form.step)
            a.cmp("r0", "r11")
        with a.scheduled():
            self._finish()
        a.b(self._clamping, "ne")
        a.place(self._clamped)

    def place_clamping(self) -> None:
        """Put the code here that clamps: behind the routine, because most layers do not need it."""
        a = self.a
        a.place(self._clamping)
        with a.scheduled():
            a.load(r10=_Slots.low, r12=_Slots.high)
            clamp(a, self.sums[::2], "r10", "r12", "r2")
        a.b(self._clamped)

    def store_pairs(self) -> None:
        """Store the pairs at r0."""
        for n, (pair, _) in enumerate(self.pairs):
            self.a.strh(pair, at("r0", PAIR * n))

    def _start(self) -> None:
        a = self.a
        a.load(r0=_Slots.wide, r10=_Slots.bias)
        for n, one in enumerate(self.sums):
            a.ldr(one, at("r10", 4 * n))
        a.add("r10", "r10", 4 * self.outputs)
        a.str("r10", _Slots.bias)
        if self.outputs == OUTPUTS:
            a.ldr(_WEIGHTS[0], at("r1", 4))
            a.ldr(_WEIGHTS[1], at("r1", 8))

    def _finish(self) -> None:
        a = self.a
        a.ldr("r0", _Slots.correction)
        for first, second in self.pairs:
            a.sub(first, first, second, "lsl #8")
            a.sub(first, first, "r0")
        if self.form.per_channel:
            a.ldr("r0", _Slots.scaling)
            scale_wide(a, self.sums, "r0", ("r2", "lr"), [("r10", "r12")], "r3", step=SCALE_WORDS)
            a.add("r0", "r0", 4 * SCALE_WORDS * self.outputs)
            a.str("r0", _Slots.scaling)
        else:
            offsets = ("r10", "r12"), ("lr", "r0")
            scale_wide(a, self.sums, _Slots.only_scale, ("r2",), offsets, "r3")
        for first, second in self.pairs:
            a.bfi(first, second, 8, 8)
        a.load(r2=_Slots.clamps, r0=_Slots.output)
        a.cmp("r2", 0)


def _compute_sixes(a: Assembler, group: _Group) -> None:
    """The groups of six among r9 outputs; r9 + 6 outputs are left in the end."""
    done = Label()
    with a.loop(""):
        a.subs("r9", "r9", OUTPUTS)
        a.b(done, "lt")
        a.str("r9", _Slots.left)
        group.compute()
        with a.scheduled():
            a.ldr("r9", _Slots.left)
            group.store_pairs()
            a.add("r0", "r0", OUTPUTS)
            a.str("r0", _Slots.output)
    a.place(done)


def _compute_pairs(a: Assembler, group: _Group) -> None:
    """The r9 + 6 outputs that are left, if any, two at a time; the last one may be alone."""
    done, is_alone = Label(), Label()
    a.adds("r9", "r9", OUTPUTS)
    a.b(done, "le")
    a.str("r9", _Slots.left)
    with a.loop("gt"):
        group.compute()
        a.ldr("r9", _Slots.left)
        a.subs("r9", PAIR)
        a.b(is_alone, "lt")
        with a.scheduled():
            a.strh("r4", post("r0", PAIR))
            a.str("r9", _Slots.left)
        a.str("r0", _Slots.output)
    a.b(done)
    a.place(is_alone)
    a.strb("r4", at("r0"))
    a.place(done)


def _compute_tail(a: Assembler, group: _Group) -> None:
    """The outputs of the last group."""
    group.compute()
    with a.scheduled():
        group.store_pairs()
    if group.outputs % PAIR:
        a.strb(group.sums[-1], at("r0", group.outputs - 1))


def _multiply_six(a: Assembler, form: SixOutputs) -> None:
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
        _multiply_pair(a, pair, _WEIGHTS[number % 3], inputs[phase % 2])
        ahead = number + 2
        address = pre if ahead == count - 1 else at
        a.ldr(_WEIGHTS[ahead % 3], address("r1", 4 * (ahead % count) + 4))
        if pair == pairs - 1 and phase + 2 < phases:
            load_inputs(phase + 2)


def _multiply_rest(a: Assembler, form: SixOutputs, outputs: int) -> None:
    """The products of a turn for a pair or for the last group."""
    if form.tail:
        inputs = itertools.cycle(("r2", "r3"))
        weights = itertools.cycle((*_SUMS[outputs:], "r10", "r12", "lr"))
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
            total, even, odd = _SUMS[outputs - 1], load_weights(), next(weights)
            a.sxtb16(odd, even, "ror #8")
            a.sxtb16(even, even)
            a.smlad(total, even, xs[0], total)
            a.smlad(total, odd, xs[1], total)
    a.add("r1", "r1", outputs * form.step)


def _load_both(a: Assembler, inputs: tuple[str, str], offset: int) -> None:
    """Both phases of four inputs, widened."""
    even, odd = inputs
    a.ldr(odd, at("r0", offset))
    a.sxtb16(even, odd)
    a.sxtb16(odd, odd, "ror #8")


def _multiply_pair(a: Assembler, pair: int, weights: str, inputs: str) -> None:
    """The products of a word of weights of two outputs; overwrites the weights."""
    first, second = _SUMS[PAIR * pair : PAIR * pair + PAIR]
    a.smlad(first, weights, inputs, first)
    a.sxtb16(weights, weights, "ror #8")
    a.smlad(second, weights, inputs, second)
