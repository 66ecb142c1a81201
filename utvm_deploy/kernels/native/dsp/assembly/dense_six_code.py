"""The assembly of the routine for six outputs of a fully connected layer at a time.

``dense_six_outputs.py`` says how it works, and how its tables are laid out.
"""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame, words
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dense import SCALE_WORDS
from utvm_deploy.kernels.native.dsp.assembly.dense_six_products import (
    OUTPUTS,
    PAIR,
    SUMS,
    WEIGHTS,
    SixOutputsForm,
    multiply_halves,
    multiply_rest,
    multiply_six,
)
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import (
    clamp,
    helper,
    load_last_bytes,
    scale_wide,
    store_limits,
)

#: From a sum that is stored to the next.
RAW_BYTES = 8
#: Where the inputs are that the routine's C reads in the order of the weights.
_PLACE = "i / 4 * 4 + i % 2 * 2 + i % 4 / 2"
_WIDENING = """for (int32_t k = 0; k < padded; k++) {
    wide[k / 4 * 4 + k % 2 * 2 + k % 4 / 2] = (int16_t)(k < inputs ? vector[k] : 0);
}
"""
_REQUANTIZED = """\
    int32_t value = utvm_scale_wide((int32_t)sum, scaling[0], scaling[1], scaling[2], scaling[3]);
    output[o] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
"""
#: Of weights of int4: where they are, and what sums begin with and are made of, all 16 times.
_HALVES = (
    (
        "(o - place) * padded + place / 2 * 4 + place % 2",
        "(o - place) * padded / 2 + place / 2 * 4",
        1,
    ),
    (
        "(uint32_t)bias[o] - (~(uint32_t)high & ((uint32_t)bias[o | 1] << 8))",
        "(uint32_t)(bias[o] - (high & bias[o & ~1])) << (~high & 4)",
        1,
    ),
    ("i / 2 * 2 * size + i % 2 * 2", "i / 4 * 2 * size + i % 2 * 2 + i % 4 / 2", 1),
    (
        "(high & byte) | (~high & ((byte & 255) - 128))",
        "(high & byte & ~15) | (~high & ((byte & 15) - 8) * 16)",
        1,
    ),
)
_STORED = "    output[2 * o] = (int32_t)sum;\n"


class _Slots(StackFrame):
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


def six_outputs_text(core: str, parameters: str, function: str, form: SixOutputsForm) -> str:
    """The C text of the function, ordered for a core."""
    a = Assembler(core, parameters)
    if form.is_direct:
        _begin_direct(a)
        a.sub("r1", "r1", 4)  # the inner loop's offsets count from one word before
    else:
        _begin(a, is_raw=form.is_raw)
        _widen(a)
        a.sub("r1", "r2", 4)
    a.lsl("r4", "r4", 3 if form.halves else 7)
    a.str("r4", _Slots.correction)
    a.ldr("r9", _Slots.left)
    sixes, rest = _Group(a, form, OUTPUTS), _Group(a, form, form.tail or PAIR)
    _compute_sixes(a, sixes)
    if not form.is_raw:
        (_compute_tail if form.tail else _compute_pairs)(a, rest)
    a.leave()
    if not form.is_raw:
        sixes.place_clamping()
        rest.place_clamping()
    portable = helper("utvm_dense_tail" if form.tail else "utvm_dense")
    if form.is_raw:
        portable = replaced(
            portable, (", scaling += scaling_step", "", 1), (_REQUANTIZED, _STORED, 1)
        )
    if form.halves:
        portable = replaced(portable, *_HALVES)
    if form.is_direct:
        portable = replaced(portable, (_WIDENING, "", 1), ("wide[i]", f"vector[{_PLACE}]", 1))
    return a.c_function(function, portable, CONDITION)


def _begin(a: Assembler, *, is_raw: bool) -> None:
    """Put the arguments into their slots, or where ``_widen`` expects them."""
    a.enter(frame=_Slots)
    a.store(r1=_Slots.wide, r3=_Slots.bias)
    if is_raw:
        _keep_outputs(a)
    else:
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
    _keep_outputs(a)
    a.ldrsb("r8", at("r5"))
    a.ldrsb("r9", at("r5", 4))
    a.ldm("r4", ("r4-r7",))
    a.strd("r4", "r5", _Slots.only_scale)
    a.strd("r6", "r7", _Slots.only_scale.word(2))
    store_limits(a, _Slots.low, _Slots.clamps)


def _keep_outputs(a: Assembler) -> None:
    a.load(r6=a.stack_argument("output"), r7=a.stack_argument("outputs"))
    a.store(r6=_Slots.output, r7=_Slots.left)


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

    def __init__(self, a: Assembler, form: SixOutputsForm, outputs: int) -> None:
        self.a, self.form, self.outputs = a, form, outputs
        self.sums = SUMS[:outputs]
        self.pairs = list(zip(self.sums[::2], self.sums[1::2], strict=False))
        self._clamping, self._clamped = Label(), Label()

    def compute(self) -> None:
        """Sum up, requantize and clamp; then a pair is a halfword. r0 becomes the output."""
        a, form = self.a, self.form
        with a.scheduled():
            self._start()
        with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            if form.halves:
                multiply_halves(a, form, self.outputs)
            elif self.outputs == OUTPUTS:
                multiply_six(a, form)
            else:
                multiply_rest(a, form, self.outputs)
            a.add("r0", "r0", form.step if form.is_direct else 2 * form.step)
            a.cmp("r0", "r11")
        with a.scheduled():
            self._finish()
        if not form.is_raw:
            a.b(self._clamping, "ne")
            a.place(self._clamped)

    def place_clamping(self) -> None:
        """Put the code here that clamps: after the routine, because most layers do not need it."""
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

    def store_sums(self) -> None:
        """Store the sums at r0, of which each is the first of two words."""
        for n, one in enumerate(self.sums):
            self.a.str(one, at("r0", RAW_BYTES * n))

    def _start(self) -> None:
        a = self.a
        a.load(r0=_Slots.wide, r10=_Slots.bias)
        for n, one in enumerate(self.sums):
            a.ldr(one, at("r10", 4 * n))
        a.add("r10", "r10", 4 * self.outputs)
        a.str("r10", _Slots.bias)
        if self.outputs == OUTPUTS:
            a.ldr(WEIGHTS[0], at("r1", 4))
        if self.outputs == OUTPUTS and not self.form.halves:
            a.ldr(WEIGHTS[1], at("r1", 8))

    def _finish(self) -> None:
        a = self.a
        a.ldr("r0", _Slots.correction)
        for first, second in self.pairs:
            if self.form.halves:
                a.sub(second, second, first)
            else:
                a.sub(first, first, second, "lsl #8")
            a.sub(first, first, "r0")
            if self.form.halves:
                a.lsl(first, first, 4)
        if self.form.is_raw:
            a.ldr("r0", _Slots.output)
            return
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
        if group.form.is_raw:
            group.store_sums()
        with a.scheduled():
            a.ldr("r9", _Slots.left)
            if not group.form.is_raw:
                group.store_pairs()
            a.add("r0", "r0", OUTPUTS * (RAW_BYTES if group.form.is_raw else 1))
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
