"""Columns of an image with one channel: two rows of the kernel fill a word.

Four pixels of both rows are widened at a time. Behind an odd number of rows stands a value whose
weight is 0. Columns that lie apart are done one value at a time.

Layout, for depth k = 2 w + l (word, lane): k = (column, row of the kernel)
"""

from __future__ import annotations

from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import at
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import function_text, helper

CHANNELS = 1
#: The C function that fills the columns.
FILL_FUNCTION = "utvm_fill_ones"
_PARAMETERS = (
    "int16_t *to, const int8_t *first, const int8_t *second, int32_t quads, int32_t to_step"
)


@code_cache
def fill_text(core: str) -> str:
    """The C text of ``FILL_FUNCTION`` and what it calls, ordered for a core."""
    a = Assembler(core, _PARAMETERS)
    a.enter()
    a.ldr("r10", a.stack_argument("to_step"))
    with a.loop("gt", aligned=True), a.scheduled(is_loop=True):
        a.ldr("r4", at("r1"))
        a.ldr("r5", at("r2"))
        a.add("r1", "r1", 4)
        a.add("r2", "r2", 4)
        a.sxtb16("r6", "r4")
        a.sxtb16("r4", "r4", "ror #8")
        a.sxtb16("r7", "r5")
        a.sxtb16("r5", "r5", "ror #8")
        a.pkhbt("r8", "r6", "r7", "lsl #16")
        a.pkhtb("r7", "r7", "r6", "asr #16")
        a.pkhbt("r9", "r4", "r5", "lsl #16")
        a.pkhtb("r5", "r5", "r4", "asr #16")
        a.add("r11", "r0", "r10", "lsl #1")
        a.str("r8", at("r0"))
        a.str("r9", at("r0", "r10"))
        a.str("r7", at("r11"))
        a.str("r5", at("r11", "r10"))
        a.add("r0", "r11", "r10", "lsl #1")
        a.subs("r3", "r3", 1)
    a.leave()
    return "\n".join([function_text("utvm_widen_ones", a), helper(FILL_FUNCTION)])
