"""LOGISTIC and TANH of int16: lines between the entries of a table, two elements at a time.

They have one table: tanh(x) = 2 sigmoid(2 x) - 1. The C serves every core, the assembly those with
the DSP extension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import element_count
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.kernels.isa.mnemonics import at, post

# The table of the sigmoid has a value for every 1/24, as a fraction of 2**16.
_STEPS_OF_ONE = 24
_SIGMOID_ENTRIES = 256
# An input of 1.0 becomes 3 * 4096, so that each of these steps is 2**9.
_INPUT_OF_ONE = 3 * 4096
_INTEGER_BITS = 3
_PARAMETERS = (
    *("const int16_t *input", "const int32_t *table", "int32_t multiplier", "int32_t half"),
    *("int32_t shift", "int16_t *output", "int32_t pairs"),
)
#: Of the two elements of a turn: what the function is of, its magnitude, a word of the table.
_SETS = (("r8", "r9", "r10"), ("r11", "r12", "lr"))


#: How often each C text has a name that begins with "utvm_sigmoid".
_CALLS = {"utvm_sigmoid16": 1, "utvm_sigmoid_pairs": 2, "utvm_sigmoids16": 3}


@dataclass(frozen=True)
class Line:
    """A function by lines of 2**bits steps, and the name of its C functions."""

    name: str
    bits: int

    def text(self, name: str) -> str:
        """A C text of ``_CALLS`` for this function."""
        calls = ("utvm_sigmoid", f"utvm_{self.name}", _CALLS[name])
        return replaced(shared_text(name), calls)

    @property
    def one(self) -> str:
        """The C text of the function of one value."""
        return replaced(self.text("utvm_sigmoid16"), ("utvm_bits", str(self.bits), 1))


LOGISTIC, TANH = Line("logistic_line", 9), Line("tanh_line", 8)


@code_cache
def _logistic_texts(core: str) -> tuple[str, ...]:
    return _texts(core, LOGISTIC, (1 << 24) + (1 << 9), 10)


@code_cache
def _tanh_texts(core: str) -> tuple[str, ...]:
    return _texts(core, TANH, 1 << 7, 8)


def _texts(core: str, line: Line, middle: int, right: int) -> tuple[str, ...]:
    """The C texts of a function, ordered for a core.

    ``middle`` is the function of 0 with half of a result's step, before the shift to the right.
    """
    bits = line.bits
    a = Assembler(core, _PARAMETERS)
    a.enter(("r4-r11", "lr"))
    a.ldr("r6", a.stack_argument("pairs"))
    a.ldr("r5", a.stack_argument("output"))
    a.ldr("r4", a.stack_argument("shift"))
    a.add("r6", "r0", "r6", "lsl #2")
    a.constant("r7", middle)
    with a.loop("ne", aligned=True), a.scheduled(is_loop=True):
        (first, _, _), (second, _, _) = _SETS
        a.ldr(first, post("r0", 4))
        a.smlatb(second, first, "r2", "r3")
        a.smlabb(first, first, "r2", "r3")
        a.cmp("r0", "r6")
        for value, share, word in _SETS:
            a.asr(value, value, "r4")
            a.eor(share, value, value, "asr #31")
            a.sub(share, share, value, "asr #31")
            a.usat(share, bits + 8, share)
            a.lsr(word, share, bits)
            a.ldr(word, at("r1", f"{word}, lsl #2"))
            a.ubfx(share, share, 0, bits)
            a.smulbt(share, share, word)
            a.lsl(word, word, 16)
            a.add(share, share, word, f"asr #{16 - bits}")
            a.eor(share, share, value, "asr #31")
            a.add(share, share, "r7")
        (_, low, _), (_, high, _) = _SETS
        a.asr(low, low, right)
        a.pkhbt(low, low, high, f"lsl #{16 - right}")
        a.str(low, post("r5", 4))
    a.leave()
    pairs = a.c_function(f"utvm_{line.name}_pairs", line.text("utvm_sigmoid_pairs"), CONDITION)
    return line.one, pairs, line.text("utvm_sigmoids16")


def lower_sigmoid(op: Operation) -> KernelCall:
    """LOGISTIC and TANH of int16."""
    is_tanh, count = op.kind == "TANH", element_count(op.source)
    multiplier, shift = _input_scaling(op.ends[0].scale, is_tanh)
    parameters: Parameters = {
        "table": sigmoid_words(is_tanh=is_tanh),
        "multiplier": multiplier,
        "half": 1 << shift >> 1,
        "shift": shift,
    }
    kernel = CRoutine(
        f"utvm_{op.kind.lower()}_lines16",
        parameters_of(op, parameters),
        (count,),
        (),
        name=f"{op.kind.lower()}_{count}_int16",
        why="C, between entries of a table, two elements at a time",
        c_texts=(),
        assembly=_tanh_texts if is_tanh else _logistic_texts,
    )
    return op.call(kernel, parameters, in_place=[0])


def sigmoid_table() -> Array:
    """sigmoid(i / 24) in 1/2**16, lowered by half of the error of the line to the next entry."""

    def sigmoid(steps: float) -> float:
        return 65536 / (1 + math.exp(-steps / _STEPS_OF_ONE))

    table = np.zeros(_SIGMOID_ENTRIES, np.int32)
    for i in range(_SIGMOID_ENTRIES):
        excess = (sigmoid(i) + sigmoid(i + 1)) / 2 - sigmoid(i + 0.5)
        table[i] = math.floor(sigmoid(i) - excess / 2 + 0.5)
    table[-1] = 65535
    return table


def sigmoid_words(*, is_tanh: bool) -> Array:
    """Of each line of ``sigmoid_table``, its first value above 1/2, and its rise in the upper half.

    The last line is flat. Its value is what the reference makes of all larger inputs.
    """
    table = sigmoid_table()
    rises = np.append(np.diff(table), 0)
    table[-1] -= 0 if is_tanh else 1
    words: Array = (table - (1 << 15)) | (rises << 16).astype(np.int32)
    return words


def _input_scaling(scale: float, is_tanh: bool) -> tuple[int, int]:
    """The multiplier and the right shift that bring an input to a scale of 1/12288."""
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5:
        left = 15 - _INTEGER_BITS + exponent - 1
        if left == 0 or (is_tanh and left == 1):
            return 3 << left, 0
    multiplier, shift = scale * _INPUT_OF_ONE, 0
    while multiplier <= 32767.0 / 2 and shift <= 30:
        shift += 1
        multiplier *= 2
    return int(multiplier), shift


INT16_LOWERINGS = {"LOGISTIC": lower_sigmoid, "TANH": lower_sigmoid}
