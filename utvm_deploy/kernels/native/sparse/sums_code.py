"""The routines that compute sums with packed weights, for one pixel, or for four at once.

r0 points at an input, r1 at weights, and r2 at their steps or bits. With four pixels, the others
are ``pitch`` bytes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import scale
from utvm_deploy.kernels.native.sparse.packing import BITMAP, VECTORS, WORD_BITS
from utvm_deploy.targets.table import CORES, target_of

#: Pixels that share the reading of the weights.
TILE = 4
_THUMB = "defined(__thumb2__) && defined(__GNUC__)"
_VECTORS = "defined(__ARM_FEATURE_MVE) && defined(__GNUC__)"
_PITCH, _SUMS = "r4", ("r5", "r6", "r7", "r8")
_TOP_BIT = 1 << (WORD_BITS - 1)
#: At level size, GCC would keep the sums of pixels in memory.
_UNROLLED = """
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("O3")))
#endif
""".lstrip()
#: With one pixel, two blocks or weights have separate registers.
_PAIR = (("r6", "r7", "r8", "r9"), ("r10", "r11", "r12", "r3"))
#: About the cycles of an item (a block, a weight) by its form and pixels: by assembly, and by C.
_ITEM_CYCLES = {
    ("blocks", 1): (10.5, 23.0),
    ("list", 1): (6.0, 11.0),
    (BITMAP, 1): (6.4, 18.0),
    ("blocks", TILE): (24.0, 90.0),
    ("list", TILE): (11.0, 26.0),
    (BITMAP, TILE): (13.0, 36.0),
    (VECTORS, 1): (1.75, 23.0),
}
#: Tables of costs are of cores without Helium, which takes a part of that for dense layers.
_BESIDE_VECTORS = 3.4
#: Of a row of items, and of an output of a fully connected layer and of a convolution.
_ROW_CYCLES, _OUTPUT_CYCLES, _PIXEL_CYCLES = 25.0, 22.0, 10.0


class _Slots(StackFrame):
    """What a routine keeps on the stack."""

    input: Slot
    counts: Slot  # of the next row; the words of each row of a bitmap
    words: Slot  # of a bitmap's row, that are left
    outputs: Slot  # that are left
    sums: Slot


class _Limits(StackFrame):
    """The limits of outputs."""

    low: Slot
    high: Slot
    clamps: Slot  # 0 if the limits are those of int8


@code_cache
def sums_text(core: str, form: str, pixels: int) -> str:
    """The C text of ``utvm_sparse_FORM_PIXELS``, ordered for a core; ``pixels`` is 1 or 4."""
    a = Assembler(core, _parameters(form))
    sums = ("r6",) if form == VECTORS else _SUMS[:pixels]  # VMLADAVA wants an even register
    a.enter(frame=_Slots)
    a.store(r0=_Slots.input, r3=_Slots.counts)
    a.copy_arguments("r12", _Slots, "outputs", "sums")
    a.ldr(_PITCH, a.stack_argument("pitch"))
    with a.loop("ne"):
        a.ldr("r0", _Slots.input)
        for one in sums:
            a.mov(one, 0)
        _ROWS[form](a, sums)
        a.load(r11=_Slots.sums, r12=_Slots.outputs)
        for one in sums:
            a.str(one, post("r11", 4))
        a.subs("r12", "r12", 1)
        a.store(r11=_Slots.sums, r12=_Slots.outputs)
    a.leave()
    condition = CONDITION if form == "blocks" else _THUMB
    if form == VECTORS:
        places = ("x += 4", "x = input + 4", 1), ("counts[o]", "4 * counts[o]", 1)
        body = replaced(shared_text("utvm_sparse_blocks"), ("PIXELS", "1", 4), *places)
        condition = _VECTORS
    else:
        body = replaced(shared_text(f"utvm_sparse_{form}"), ("PIXELS", str(pixels), 4))
    return a.c_function(f"utvm_sparse_{form}_{pixels}", body, condition, _UNROLLED)


def sums_cycles(core: str, form: str, pixels: int, items: int, rows: int) -> float:
    """About the cycles of ``utvm_sparse_FORM_PIXELS``, in those of a core's table of costs."""
    has_assembly = bool({"dsp", "thumb"} & {*_families(core)})
    found = _ITEM_CYCLES[form, pixels][not has_assembly] * items + _ROW_CYCLES * rows
    return found * (_BESIDE_VECTORS if has_vectors(core) else 1.0)


def has_vectors(core: str) -> bool:
    """Whether a core can gather blocks (``VECTORS``)."""
    return "mve" in _families(core)


def _families(core: str) -> Sequence[str]:
    return target_of(core).families_of(CORES[core]) if core in CORES else ()


def outputs_cycles(outputs: int, *, is_dense: bool) -> float:
    """About the cycles of making outputs of sums."""
    return (_OUTPUT_CYCLES if is_dense else _PIXEL_CYCLES) * outputs


@code_cache
def pixels_text(core: str, pixels: int) -> str:
    """The C text of ``utvm_sparse_pixels_PIXELS``, which makes outputs of sums."""
    parameters = (
        *("const int32_t *sums", "const int32_t *scaling", "const int32_t *limits"),
        *("int8_t *output", "int32_t outputs", "int32_t pitch"),
    )
    a, sums = Assembler(core, parameters), ("r4", "r5", "r6", "r7")[:pixels]
    a.enter(frame=_Limits)
    a.ldrd("r8", "r9", at("r2"))
    a.strd("r8", "r9", _Limits.low)
    a.sub("r10", "r9", "r8")
    a.sub("r10", "r10", 255)
    a.str("r10", _Limits.clamps)
    a.ldr("lr", a.stack_argument("outputs"))
    a.ldr("r2", a.stack_argument("pitch"))
    with a.loop("ne"):
        with a.scheduled():
            a.ldmia("r0!", sums) if pixels > 1 else a.ldr(sums[0], post("r0", 4))
            a.ldmia("r1!", ("r8-r11",))
            for one in sums:
                a.add(one, one, "r8")
            scale(a, sums, "r9", "r10", "r11", "r8")
            a.ldr("r12", _Limits.clamps)
            a.cmp("r12", 0)
        with a.unless("eq"):
            a.ldrd("r8", "r9", _Limits.low)
            for one in sums:
                for limit, condition in (("r8", "lt"), ("r9", "gt")):
                    a.cmp(one, limit)
                    with a.when(condition):
                        a.mov(one, limit)
        for n, one in enumerate(sums[1:], 1):
            a.add("r12", "r3" if n == 1 else "r12", "r2")
            a.strb(one, at("r12"))
        a.strb(sums[0], post("r3", 1))
        a.subs("lr", "lr", 1)
    a.leave()
    body = replaced(shared_text("utvm_sparse_pixels"), ("PIXELS", str(pixels), 2))
    return a.c_function(f"utvm_sparse_pixels_{pixels}", body, CONDITION)


def _parameters(form: str) -> tuple[str, ...]:
    stored = ("const uint8_t *steps", "const uint16_t *counts")
    if form == BITMAP:
        stored = ("const uint32_t *bits", "int32_t words")
    rest = ("int32_t outputs", "int32_t *sums", "int32_t pitch")
    return "const int8_t *input", "const int8_t *weights", *stored, *rest


def _items(
    a: Assembler, sums: Sequence[str], one: Callable[[Sequence[str]], None],
    tile: Callable[[Sequence[str]], None],
) -> None:  # fmt: skip
    """A row of items: ``one`` takes an item of one pixel, ``tile`` an item of four pixels."""
    a.ldr("r11", _Slots.counts)
    a.ldrh("lr", post("r11", 2))
    a.str("r11", _Slots.counts)
    if len(sums) > 1:
        a.add("r3", "r0", _PITCH, "lsl #1")
        a.cmp("lr", 0)
        with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            tile(sums)
            a.subs("lr", "lr", 1)
        return
    a.lsrs("lr", "lr", 1)
    with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for registers in _PAIR:
            one(registers)
        a.subs("lr", "lr", 1)
    a.ldr("r11", _Slots.counts)
    a.ldrh("r11", at("r11", -2))
    a.tst("r11", 1)
    with a.unless("eq"), a.scheduled():
        one(_PAIR[0])


def _blocks(a: Assembler, sums: Sequence[str]) -> None:
    def one(registers: Sequence[str]) -> None:
        even, odd, low, high = registers
        a.ldrb(even, post("r2", 1))
        a.ldr(low, post("r1", 4))
        a.add("r0", "r0", even, "lsl #2")
        a.ldr(even, at("r0"))
        a.sxtb16(high, low, "ror #8")
        a.sxtb16(low, low)
        _multiply(a, even, odd, (low, high), sums[0])

    def tile(sums: Sequence[str]) -> None:
        a.ldrb("r11", post("r2", 1))
        a.ldr("r9", post("r1", 4))
        a.add("r0", "r0", "r11", "lsl #2")
        a.add("r3", "r3", "r11", "lsl #2")
        a.sxtb16("r10", "r9", "ror #8")
        a.sxtb16("r9", "r9")
        for n, total in enumerate(sums):
            base = ("r0", "r3")[n // 2]
            a.ldr("r11", at(base, _PITCH) if n % 2 else at(base))
            _multiply(a, "r11", "r12", ("r9", "r10"), total)

    _items(a, sums, one, tile)


def _multiply(a: Assembler, word: str, odd: str, weights: tuple[str, str], total: str) -> None:
    """Add the products of four inputs in ``word`` with widened weights; overwrites both."""
    a.sxtb16(odd, word, "ror #8")
    a.sxtb16(word, word)
    a.smlad(total, word, weights[0], total)
    a.smlad(total, odd, weights[1], total)


def _list(a: Assembler, sums: Sequence[str]) -> None:
    def one(registers: Sequence[str]) -> None:
        step, value, weight, _ = registers
        a.ldrb(step, post("r2", 1))
        a.ldrsb(weight, post("r1", 1))
        a.add("r0", "r0", step)
        a.ldrsb(value, at("r0"))
        a.mla(sums[0], value, weight, sums[0])

    def tile(sums: Sequence[str]) -> None:
        a.ldrb("r9", post("r2", 1))
        a.ldrsb("r10", post("r1", 1))
        a.add("r0", "r0", "r9")
        a.add("r3", "r3", "r9")
        for n, total in enumerate(sums):
            base, value = ("r0", "r3")[n // 2], ("r11", "r12")[n % 2]
            a.ldrsb(value, at(base, _PITCH) if n % 2 else at(base))
            a.mla(total, value, "r10", total)

    _items(a, sums, one, tile)


def _bitmap(a: Assembler, sums: Sequence[str]) -> None:
    left, top, place, weight = "r3", "r9", "r10", "r11"
    values = ("r12", "lr")
    is_single = len(sums) == 1

    def add(n: int) -> None:
        a.mla(sums[n], values[n % 2], weight, sums[n])

    a.constant(top, _TOP_BIT)
    a.ldr(values[0], _Slots.counts)
    with a.loop("ne"):
        a.str(values[0], _Slots.words)
        a.ldr(left, post("r2", 4))
        if is_single:
            a.mov(weight, 0)
        a.cmp(left, 0)
        with a.unless("eq"), a.loop("ne", aligned=True), a.scheduled(is_loop=True):
            a.clz(place, left)
            if is_single:
                add(0)  # the product of the turn before, whose loads take a while
            a.lsr(values[1], top, place)
            a.subs(left, left, values[1])
            a.ldrsb(weight, post("r1", 1))
            for n, _ in enumerate(sums):
                a.ldrsb(values[n % 2], at("r0", place))
                if not is_single:
                    add(n)
                    if n < len(sums) - 1:
                        a.add(place, place, _PITCH)
        if is_single:
            add(0)
        a.add("r0", "r0", WORD_BITS)
        a.ldr(values[0], _Slots.words)
        a.subs(values[0], values[0], 1)


def _vectors(a: Assembler, sums: Sequence[str]) -> None:
    """Each turn gathers four blocks; their places were loaded a turn before."""
    a.ldr("r11", _Slots.counts)
    a.ldrh("r9", post("r11", 2))
    a.str("r11", _Slots.counts)
    a.vldrb_u32("q0", post("r2", 4))
    with a.hardware_loop("dls", "r9"):
        a.vldrw_u32("q1", at("r0", "q0, uxtw #2"))
        a.vldrb_u32("q0", post("r2", 4))
        a.vldrb_u8("q2", post("r1", 16))
        a.vmladava_s8(sums[0], "q1", "q2")
    a.sub("r2", 4)


_ROWS = {"blocks": _blocks, "list": _list, BITMAP: _bitmap, VECTORS: _vectors}
