"""Columns of an image with three channels: each two rows of the kernel fill three words.

One word of the image holds a pixel and a byte that is not needed. SXTB16 gives the channels 0 and 2
of it, and the channels 1 and 3. The channels 1 of two rows become one word. So a column of three
rows has ten values instead of twelve.

Layout, for depth k = 2 w + l (word, lane), k = (column, place), where a column is

    channels 0 and 2 of row 0, channels 0 and 2 of row 1, channel 1 of rows 0 and 1;
    ... the same for the next two rows;
    of a last single row: channels 0 and 2, channel 1 and a byte whose weight is 0
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import function_text, helper

CHANNELS = 3
#: The C function that fills the columns.
FILL_FUNCTION = "utvm_fill_threes"
_PAIR_PARAMETERS = """
int16_t *to, const int8_t *first, const int8_t *second, int32_t pixels, int32_t first_step,
int32_t second_step, int32_t to_step
"""
_LAST_PARAMETERS = (
    "int16_t *to, const int8_t *from, int32_t pixels, int32_t from_step, int32_t to_step"
)
#: Where the values of two rows, and of a single row, are in (row, channel).
_OF_PAIR = (0, 2, 3, 5, 1, 4)
_OF_SINGLE = (0, 2, 1, 3)


def by_column(weights: Array) -> Array:
    """[outputs, rows, columns, 3] -> [outputs, values of a window] in their order here."""
    outputs, rows, columns, _ = weights.shape
    split = weights.transpose(0, 2, 1, 3)
    pairs = split[:, :, : rows // 2 * 2].reshape(outputs, columns, -1, 2 * CHANNELS)
    ordered = pairs[..., _OF_PAIR].reshape(outputs, columns, -1)
    if rows % 2:
        last = np.pad(split[:, :, -1], ((0, 0), (0, 0), (0, 1)))[..., _OF_SINGLE]
        ordered = np.concatenate([ordered, last], axis=2)
    found: Array = ordered.reshape(outputs, -1)
    return found


@code_cache
def fill_text(core: str) -> str:
    """The C text of ``FILL_FUNCTION`` and what it calls, ordered for a core."""
    pair = Assembler(core, _PAIR_PARAMETERS)
    _widen_pair(pair)
    last = Assembler(core, _LAST_PARAMETERS)
    _widen_single(last)
    texts = function_text("utvm_widen_threes", pair), function_text("utvm_widen_last_three", last)
    return "\n".join([*texts, helper(FILL_FUNCTION)])


def _widen_pair(a: Assembler) -> None:
    """A pixel of two rows in each turn."""
    a.enter()
    a.load(r8=a.stack_argument("first_step"), r9=a.stack_argument("second_step"))
    a.ldr("r10", a.stack_argument("to_step"))
    with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
        a.ldr("r4", at("r1"))
        a.ldr("r5", at("r2"))
        a.add("r1", "r1", "r8")
        a.add("r2", "r2", "r9")
        a.sxtb16("r6", "r4")
        a.sxtb16("r4", "r4", "ror #8")
        a.sxtb16("r7", "r5")
        a.sxtb16("r5", "r5", "ror #8")
        a.pkhbt("r4", "r4", "r5", "lsl #16")
        a.str("r6", at("r0"))
        a.str("r7", at("r0", 4))
        a.str("r4", at("r0", 8))
        a.add("r0", "r0", "r10")
        a.subs("r3", "r3", 1)
    a.leave()


def _widen_single(a: Assembler) -> None:
    """A pixel of the last row in each turn."""
    a.enter()
    a.ldr("r10", a.stack_argument("to_step"))
    with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
        a.ldr("r4", at("r1"))
        a.add("r1", "r1", "r3")
        a.sxtb16("r5", "r4", "ror #8")
        a.sxtb16("r4", "r4")
        a.str("r4", at("r0"))
        a.str("r5", at("r0", 4))
        a.add("r0", "r0", "r10")
        a.subs("r2", "r2", 1)
    a.leave()
