"""AVERAGE_POOL_2D and MAX_POOL_2D for cores with the DSP extension: four channels in a word.

Maxima are taken byte by byte, by SSUB8 and SEL. Sums are 16 bits each, two in a register, so a
window may have 255 positions. A mean is floor((2 * sum + count - [sum < 0]) / (2 * count)), which
rounds halves away from zero. 128 is added first, so that it is not negative. The division is a
multiplication by the reciprocal, which is exact for numbers of this size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION, select
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import clamp, store_limits
from utvm_deploy.kernels.native.pool import NativePool, load_reciprocal, pixel_parameters

_WORD = 4  # channels
_ACCUMULATORS = tuple(f"r{n}" for n in range(4, 12))


@dataclass(frozen=True)
class DspPool(NativePool):
    """Shape parameters of a pooling layer."""

    family = "dsp"
    condition = CONDITION
    prefix = "utvm"
    least_channels = _WORD

    @property
    def why(self) -> str:
        return "DSP assembly, four channels in a word"

    def pixel(self, core: str) -> Assembler:
        return _pixel(core, self.is_average)


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    image: Slot  # the window's first position, at the next channels
    output: Slot  # of the next channels
    rows: Slot
    columns: Slot
    left: Slot  # channels
    rows_left: Slot
    low: Slot
    high: Slot
    clamps: Slot  # 0: the limits are those of int8
    raised: Slot  # 257 times the count of positions
    reciprocal: Slot  # 2**31 / count, rounded up


@code_cache
def _pixel(core: str, is_average: bool) -> Assembler:
    a = Assembler(core, pixel_parameters("int8"))
    a.enter(frame=_Slots)
    a.strd("r0", "r1", _Slots.image)
    a.strd("r2", "r3", _Slots.rows)
    a.ldr("r4", a.stack_argument("channels"))
    a.ldrd("r8", "r9", a.stack_argument("low"))
    a.str("r4", _Slots.left)
    store_limits(a, _Slots.low, _Slots.clamps)
    if is_average:
        load_reciprocal(a, "r2", "r6", "r5")
        a.add("r5", "r2", "r2", "lsl #8")
        a.strd("r5", "r6", _Slots.raised)
    # Sums take two registers for each word of channels.
    most, *fewer = (4, 2) if is_average else (8, 4, 2)
    again = a.here()
    a.ldr("r2", _Slots.left)
    a.cmp("r2", _WORD * most)
    with a.unless("lt"):
        _compute_words(a, most, is_average)
        a.b(again)
    for words in fewer:
        a.cmp("r2", _WORD * words)
        with a.unless("lt"):
            _compute_words(a, words, is_average)
    done = Label()
    next_word = a.here()
    a.cmp("r2", 0)
    a.b(done, "le")
    a.cmp("r2", _WORD)
    with a.unless("ge"):  # the last word begins earlier: some channels are computed again
        a.rsb("r2", "r2", _WORD)
        a.ldrd("r0", "r1", _Slots.image)
        a.sub("r0", "r0", "r2")
        a.sub("r1", "r1", "r2")
        a.strd("r0", "r1", _Slots.image)
        a.mov("r2", _WORD)
        a.str("r2", _Slots.left)
    _compute_words(a, 1, is_average)
    a.b(next_word)
    a.place(done)
    a.leave()
    return a


def _compute_words(a: Assembler, words: int, is_average: bool) -> None:
    """Compute ``words`` words of channels of the pixel; r2 becomes the channels that remain."""
    accumulators = _ACCUMULATORS[: 2 * words if is_average else words]
    a.load(r1=_Slots.image, r0=_Slots.rows)
    a.ldr("r3", a.stack_argument("channels"))
    a.str("r0", _Slots.rows_left)
    for one in accumulators:
        a.mov(one, 0 if is_average else 0x80808080)
    with a.loop("gt"):  # a row
        a.mov("r0", "r1")
        a.ldr("r2", _Slots.columns)
        with a.loop("gt", aligned=True), a.scheduled(is_loop=True):  # a position
            _accumulate(a, accumulators, is_average)
            a.add("r0", "r0", "r3")
            a.subs("r2", "r2", 1)
        a.ldr("r0", _Slots.rows_left)
        a.ldr("r12", a.stack_argument("row_bytes"))
        a.subs("r0", "r0", 1)
        a.add("r1", "r1", "r12")
        a.str("r0", _Slots.rows_left)
    results = accumulators
    if is_average:
        results = accumulators[::2]
        a.ldrd("r0", "r1", _Slots.raised)
        with a.scheduled():
            for even, odd in zip(results, accumulators[1::2], strict=True):
                _divide(a, even, odd)
    _store(a, results)


def _accumulate(a: Assembler, accumulators: Sequence[str], is_average: bool) -> None:
    """Add the words at r0 to pairs of accumulators: bytes 0 and 2, then 1 and 3. Or keep maxima."""
    if not is_average:
        for number, largest in enumerate(accumulators):
            a.ldr("r12", at("r0", _WORD * number))
            select(a, "lr", largest, "r12", largest, "r12")
        return
    for number, (even, odd) in enumerate(zip(accumulators[::2], accumulators[1::2], strict=True)):
        value = ("r12", "lr")[number % 2]
        a.ldr(value, at("r0", _WORD * number))
        a.sxtab16(even, even, value)
        a.sxtab16(odd, odd, value, "ror #8")


def _divide(a: Assembler, even: str, odd: str) -> None:
    """Four sums become four means in ``even``. r0 has 257 times the count, r1 its reciprocal."""
    # The upper sum of a register first: SXTH overwrites it.
    a.asr("r2", odd, 16)
    _divide_one(a, "r2", "r3")
    a.asr("r12", even, 16)
    _divide_one(a, "r12", "lr")
    a.sxth(odd, odd)
    _divide_one(a, odd, "r3")
    a.sxth(even, even)
    _divide_one(a, even, "lr")
    for byte, value in enumerate((odd, "r12", "r2"), 1):
        a.bfi(even, value, 8 * byte, 8)
    a.eor(even, even, 0x80808080)  # takes the 128 off again


def _divide_one(a: Assembler, value: str, temporary: str) -> None:
    """A sum becomes its mean plus 128, in place."""
    a.add(temporary, "r0", value, "asr #31")
    a.add(temporary, temporary, value, "lsl #1")
    a.umull(temporary, value, temporary, "r1")


def _store(a: Assembler, results: Sequence[str]) -> None:
    """Limit and store words; r2 becomes the channels that are left."""
    a.ldr("r2", _Slots.clamps)
    a.cmp("r2", 0)
    with a.unless("eq"), a.scheduled():
        a.load(r12=_Slots.low, lr=_Slots.high)
        clamp(a, results, "r12", "lr", "r2")
    with a.scheduled():
        a.ldr("r1", _Slots.output)
        for one in results:
            a.str(one, post("r1", _WORD))
    a.load(r0=_Slots.image, r2=_Slots.left)
    a.add("r0", "r0", _WORD * len(results))
    a.sub("r2", "r2", _WORD * len(results))
    a.strd("r0", "r1", _Slots.image)
    a.str("r2", _Slots.left)
