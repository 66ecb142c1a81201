"""Operators on bytes by a table, with the DSP extension: eight bytes in a turn.

The compiler's code for ``c/utvm_lookup.h`` waits for each entry. Here, the loads of eight entries
come before their use.
"""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import at, post
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.targets.table import CORES, target_of

#: Elements below which the compiler's code is as fast.
_FEWEST = 32
_ENTRIES = tuple(f"r{number}" for number in range(4, 12))
_FALLBACK = "    utvm_lookup(input, table, output, count);\n"
_PARAMETERS = "const void *input, const void *table, void *output, int32_t count"


def build_lookup(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    call, kernel = layer.portable, layer.portable.kernel
    if not isinstance(kernel, CRoutine) or kernel.function != "utvm_lookup":
        return ""
    if "mve" in target_of(layer.core).families_of(CORES[layer.core]) or wish.compact:
        return ""
    if kernel.numbers[0] < _FEWEST:
        return ""
    made = replace(
        kernel,
        function="utvm_lookup_all",
        name=f"{kernel.name}_dsp",
        why="DSP assembly, one table lookup per element, eight at a time",
        c_texts=(),
        assembly=_texts,
    )
    return replace(call, kernel=made)


@code_cache
def _texts(core: str) -> tuple[str, ...]:
    """The C of ``utvm_lookup_all``; the assembly does a multiple of eight bytes."""
    a = Assembler(core, _PARAMETERS)
    a.enter()
    a.add("r3", "r3", "r0")
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        for number, one in enumerate(_ENTRIES):
            a.ldrb(one, at("r0", number - 8) if number else post("r0", 8))
        a.cmp("r0", "r3")
        for one in _ENTRIES:
            a.ldrb(one, at("r1", one))
        for first, second, third, fourth in (_ENTRIES[:4], _ENTRIES[4:]):
            a.orr(first, first, second, "lsl #8")
            a.orr(third, third, fourth, "lsl #8")
            a.orr(first, first, third, "lsl #16")
            a.str(first, post("r2", 4))
    a.leave()
    eights = a.c_function("utvm_lookup_eights", _FALLBACK, CONDITION)
    return shared_text("utvm_lookup"), eights, helper("utvm_lookup_all")
