"""Products of a vector with the rows of an int8 matrix, for LSTM, SVDF, BATCH_MATMUL and int16x8.

Four rows are done at a time: each word of the vector is split once, for four products with the word
of each row. The C serves every core, the assembly those with the DSP extension.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import Slot, post
from utvm_deploy.targets.table import CORES, target_of

ROWS = 4
_POINTERS = ("r1", "r4", "r5", "r6")
_SUMS = ("r7", "r8", "r9", "r10")
#: GCC would load all bytes of a turn first, for which there are too few registers.
_AS_WRITTEN = """
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("no-schedule-insns", "no-tree-ter")))
#endif
""".lstrip()
#: Saved first, and read again for the next four rows.
_PITCH, _COUNT = Slot(0), Slot(4)


@code_cache
def dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_dot_rows``, of a vector of int8, ordered for a core."""
    a = Assembler(core, (*_parameters("int8_t"), "int32_t fours"))
    a.enter(("r2-r11", "lr"))
    a.add("r3", "r0", "r3")

    def split() -> None:
        # r12 gets bytes 0 and 2 of the vector's word, r11 bytes 1 and 3.
        a.ldr("r12", post("r0", 4))
        a.sxtb16("r11", "r12", "ror #8")
        a.sxtb16("r12", "r12")

    with a.loop("ne"):  # four more rows
        _add_products(a, split, ("r12", "r11"))
        a.ldr("r2", a.stack_argument("sums"))
        a.ldr("lr", a.stack_argument("fours"))
        a.ldrd("r11", "r12", _PITCH)
        a.stmia("r2!", _SUMS)
        a.sub("r0", "r0", "r12")
        a.sub("r1", "r6", "r12")
        a.str("r2", a.stack_argument("sums"))
        a.mov("r2", "r11")
        a.add("r1", "r1", "r11")
        a.subs("lr", "lr", 1)
        a.str("lr", a.stack_argument("fours"))
    a.leave()
    portable, driver = map(shared_text, ("utvm_dot_fours", "utvm_dot_rows"))
    return a.c_function("utvm_dot_fours", portable, CONDITION), driver


@code_cache
def wide_dot_texts(core: str) -> tuple[str, ...]:
    """The C texts of ``utvm_wide_rows``, of a vector of int16, ordered for a core.

    The assembly does four rows, of a multiple of four products.
    """
    a = Assembler(core, _parameters("int16_t"))
    a.enter()
    a.add("r3", "r0", "r3", "lsl #1")

    def load() -> None:
        a.ldr("r11", post("r0", 4))
        a.ldr("r12", post("r0", 4))

    _add_products(a, load, ("r11", "r12"))
    a.ldr("r0", a.stack_argument("sums"))
    a.stmia("r0", _SUMS)
    a.leave()
    # The scalar family has registers for the sums of all four rows.
    is_scalar = core in CORES and "scalar" in target_of(core).families_of(CORES[core])
    name = "utvm_wide_four_at_once" if is_scalar else "utvm_wide_four"
    portable, driver = map(shared_text, (name, "utvm_wide_rows"))
    attribute = _AS_WRITTEN if is_scalar else ""
    return a.c_function("utvm_wide_four", portable, CONDITION, attribute), driver


def _parameters(element: str) -> tuple[str, ...]:
    vector = f"const {element} *vector"
    return vector, "const int8_t *matrix", "int32_t pitch", "int32_t count", "int32_t *sums"


def _add_products(a: Assembler, step: Callable[[], None], halves: tuple[str, str]) -> None:
    """Sum up the products of four rows, which begin r2 bytes apart, with the vector up to r3.

    ``step`` loads four elements of the vector into ``halves``: the first multiplies bytes 0 and 2
    of a row's word, the other one bytes 1 and 3. Overwrites r2.
    """
    for pointer, following in pairwise(_POINTERS):
        a.add(following, pointer, "r2")
    for total in _SUMS:
        a.mov(total, 0)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        step()
        a.cmp("r0", "r3")
        for pointer, total in zip(_POINTERS, _SUMS, strict=True):
            a.ldr("lr", post(pointer, 4))
            a.sxtb16("r2", "lr", "ror #8")
            a.sxtb16("lr", "lr")
            a.smlad(total, "lr", halves[0], total)
            a.smlad(total, "r2", halves[1], total)
