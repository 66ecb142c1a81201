"""ADD of two equal shapes for cores with the DSP extension: one side by a table, one by a shift.

The reference scales both sides by 2**20 and the ratio of their scales to twice the larger one. For
the side with the larger scale the ratio is one half: that side is exactly its value shifted by 19.
What the other side contributes has 256 values, which are computed here with its rounding, together
with both zero points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from utvm_deploy.cores.timing import Timing
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import Argument, ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp.code import c_text, helper
from utvm_deploy.kernels.dsp.gemm import scaled, selected
from utvm_deploy.kernels.micro.assembly import (
    Instruction,
    add_shifted,
    compare,
    extend_byte,
    insert_byte,
    load,
    load_next,
    store_next,
)
from utvm_deploy.kernels.micro.order import timing_of
from utvm_deploy.kernels.micro.routine import Routine
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)

NAME = "utvm_add_words"
PARAMETERS = (
    "const int8_t *looked_up",
    "const int8_t *shifted",
    "const int32_t *table",
    "const int32_t *scaling",
    "int8_t *output",
    "int32_t count",
)
#: What the side with the larger scale is shifted by.
EXACT_SHIFT = 19
_WORD = 4
_SAVED_BYTES = 36


@dataclass(frozen=True)
class DspAdd:
    """ADD of ``count`` elements; whole words in assembly, what is left in C."""

    count: int

    @property
    def name(self) -> str:
        return f"add_{self.count}_dsp"

    def prim_func(self) -> Any:
        whole = self.count // _WORD * _WORD
        parameters = self._operands(self.count)

        def body(buffers: Buffers) -> None:
            with script.grid(1, 1) as (i, j), script.sblock("words"):
                script.axis.remap("SS", [i, j])
                reads = [buffers[name][0:whole] for name in ("looked_up", "shifted")]
                script.reads(*reads, *(o.region(buffers) for o in parameters[2:4]))
                script.writes(buffers["output"][0:whole])
                self._meaning("words_element", whole, buffers)
            if whole < self.count:
                self._meaning("rest", self.count - whole, buffers, whole)

        helpers = [shared_text("utvm_scale"), helper("utvm_entry")]
        return prim_func(parameters, [], body, helpers=helpers)

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, shared_text("utvm_scale"), helper("utvm_entry"), add_text(core))
        whole = self.count // _WORD * _WORD
        operands = self._operands(whole)

        def meaning(buffers: Buffers) -> None:
            self._meaning("words_element", whole, buffers)

        def call(buffers: Buffers) -> Any:
            return extern(NAME, *(o.start(buffers) for o in operands), whole)

        tensorize(sch, "words", operands[:4], operands[4:], meaning, call)
        return "DSP assembly, one side from a table"

    @staticmethod
    def _operands(count: int) -> list[Operand]:
        return [
            Operand("looked_up", (count,), "int8"),
            Operand("shifted", (count,), "int8"),
            Operand("table", (256,), "int32"),
            Operand("scaling", (5,), "int32"),
            Operand("output", (count,), "int8"),
        ]

    @staticmethod
    def _meaning(name: str, count: int, buffers: Buffers, first: int = 0) -> None:
        table, scaling = buffers["table"], buffers["scaling"]

        def element(i: Any) -> None:
            # By a call: TVM does not compare indices that are loaded themselves.
            value = buffers["looked_up"][i + first].astype("int32")
            other = buffers["shifted"][i + first].astype("int32")
            entry = pure("utvm_entry", script.address_of(table[0]), value)
            total = entry + other * (1 << EXACT_SHIFT)
            value = pure("utvm_scale", total, scaling[0], scaling[1], scaling[2])
            clamped = pure("utvm_clamp", value, scaling[3], scaling[4])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [i + first])

        block(name, [("i", count, "S")], element)


@lru_cache(maxsize=8)
def add_text(core: str) -> str:
    """The C text of ``utvm_add_words``, ordered for a core."""
    return c_text(NAME, PARAMETERS, _routine(timing_of(core)))


def _routine(timing: Timing) -> Routine:
    r = Routine(timing)
    r.plain(
        "push {r4-r11, lr}",
        "sub sp, #12",
        "ldr r4, [r3]",
        "ldr r5, [r3, #4]",
        "ldr r6, [r3, #8]",
        "ldrsb r8, [r3, #12]",
        "ldrsb r9, [r3, #16]",
        f"ldr r7, [sp, #{12 + _SAVED_BYTES + 4}]",
        f"ldr r3, [sp, #{12 + _SAVED_BYTES}]",
        "add r7, r7, r0",
        "str r7, [sp, #0]",
        "mov r10, #0x01010101",
        "cmp r8, #-128",
        "it eq",
        "cmpeq r9, #127",
        "uxtb r8, r8",
        "uxtb r9, r9",
        "mul r8, r8, r10",
        "mul r9, r9, r10",
        "strd r8, r9, [sp, #4]",
        "bne 2f",
    )
    r.label("1", is_loop=True)
    end = [store_next("lr", "r3", 4), load("r7", "sp"), compare("r0", "r7")]
    r.straight([*_word(), *end], is_loop=True)
    r.plain("bne 1b", "3:", "add sp, #12", "pop {r4-r11, pc}")
    r.label("2", is_loop=True)
    bounds = [load("r9", "sp", 4), load("r10", "sp", 8)]
    low = selected("r11", "lr", "r9", "lr", "r9")
    r.straight([*_word(), *bounds, *low, *selected("r11", "r10", "lr", "lr", "r10"), *end])
    r.plain("bne 2b", "b 3b")
    return r


def _word() -> list[Instruction]:
    code = [load_next("r7", "r0", 4), load_next("r8", "r1", 4)]
    for number in range(_WORD):
        value, other = (("r9", "r10"), ("r11", "r12"))[number % 2]
        code += [
            extend_byte("uxtb", other, "r7", 8 * number),
            load(value, "r2", f"{other}, lsl #2"),
            extend_byte("sxtb", other, "r8", 8 * number),
            add_shifted(value, value, other, f"lsl #{EXACT_SHIFT}"),
        ]
        if number == 0:
            code += scaled((value,), "r4", "r5", "r6", other, into="lr")
        else:
            code += scaled((value,), "r4", "r5", "r6", other)
            code.append(insert_byte("lr", value, number))
    return code


def dsp_add_call(
    call: KernelCall,
    sides: tuple[Argument, Argument],
    table: Callable[[int], int],
    scaling: tuple[int, ...],
    count: int,
) -> KernelCall:
    """The call instead of the generic one; ``sides``: looked up, shifted."""
    values: Array = np.array([table(q) for q in (*range(128), *range(-128, 0))], dtype=np.int32)
    arguments = (
        *sides,
        ConstantArgument("table", values),
        ConstantArgument("scaling", np.array(scaling, dtype=np.int32)),
        call.arguments[-1],
    )
    return replace(call, kernel=DspAdd(count), arguments=arguments)
