"""ADD, SUB, MUL, PRELU, MINIMUM and MAXIMUM of int8 for cores with the DSP extension.

Of a sum, the side with the scale one half is exactly its value shifted by 19. The other side
contributes one of 256 values, which a table holds with the reference's rounding and both zero
points. A compact kernel makes this table in scratch. PRELU takes positive values from a table and
multiplies the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.native.dsp import elementwise_code as code
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.elementwise import (
    ElementwiseKernel,
    elementwise_call,
    sides_of_sum,
)
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT
from utvm_deploy.kernels.portable.elementwise import (
    HEADROOM_BITS,
    BroadcastAdd,
    BroadcastExtremum,
    BroadcastMultiply,
    BroadcastPrelu,
)
from utvm_deploy.kernels.portable.lookup import lookup_table
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Operation -> words of its table: 256 summands, or 256 bytes.
_TABLE_WORDS = {code.ADD: 256, code.SUBTRACT: 256, code.PRELU: 64}
#: What ``utvm_tabulate_sum`` makes the table of a sum from.
_TABLE_SOURCE_WORDS = 5
_HOW = {
    code.ADD: "one side from a table",
    code.SUBTRACT: "one side from a table",
    code.PRELU: "what is positive from a table",
}


@dataclass(frozen=True)
class DspElementwise(ElementwiseKernel):
    """An operator of int8; ``operation`` is one of ``elementwise_code``."""

    is_compact: bool = False  # the table of a sum is made in scratch

    family: ClassVar[str] = "dsp"

    @property
    def why(self) -> str:
        return f"DSP assembly, {_HOW.get(self.operation, 'four bytes at a time')}"

    @property
    def number_count(self) -> int:
        return code.NUMBERS + _TABLE_SOURCE_WORDS if self.is_compact else self._whole_count

    @property
    def loop(self) -> str:
        return f"utvm_{self.operation}_all"

    @property
    def runs_text(self) -> str:
        return helper("utvm_runs")

    @property
    def scratch(self) -> tuple[Operand, ...]:
        whole = Operand("made_numbers", (self._whole_count,), "int32")
        return (whole,) if self.is_compact else ()

    def loop_texts(self, core: str) -> tuple[str, ...]:
        texts = code.elementwise_texts(core, self.operation)
        return (*texts, helper("utvm_tabulate_sum")) if self.is_compact else texts

    def drive(self, c: Driver) -> None:
        _, _, numbers, _ = self.parameters
        if self.is_compact:
            (whole,) = self.scratch
            c.call("utvm_tabulate_sum", numbers.at(), whole.at())
            numbers = whole
        self.drive_runs(c, numbers)

    @property
    def _whole_count(self) -> int:
        """Words that the routine reads."""
        return code.NUMBERS + _TABLE_WORDS.get(self.operation, 0)


def dsp_elementwise_call(call: KernelCall, *, is_compact: bool) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    kernel, numbers = call.kernel, scalars(call)
    if isinstance(kernel, BroadcastAdd):
        return _sum_call(call, kernel, numbers, is_compact=is_compact)
    if isinstance(kernel, BroadcastMultiply):
        scaling = _scaling("output", numbers)
        if isinstance(scaling, str):
            return scaling
        return elementwise_call(call, DspElementwise, code.MULTIPLY, [*scaling, 0])
    if isinstance(kernel, BroadcastPrelu):
        return _prelu_call(call, numbers)
    if isinstance(kernel, BroadcastExtremum):
        flip = 0 if kernel.takes_largest else -1
        return elementwise_call(call, DspElementwise, code.EXTREMUM, [*[0] * 7, flip])
    return ""


def _sum_call(
    call: KernelCall, kernel: BroadcastAdd, numbers: Mapping[str, int], *, is_compact: bool
) -> KernelCall | str:
    sides = sides_of_sum(kernel, numbers)
    if isinstance(sides, str):
        return sides
    scaling = _scaling("output", numbers)
    if isinstance(scaling, str):
        return scaling
    tabulated, shifted = sides
    signs = {"left": 1, "right": -1 if kernel.subtracts else 1}
    # The routine adds the shifted side, or, to subtract it, all of its bits flipped.
    zero = numbers[f"{shifted}_zero_point"]
    constant = (-zero if signs[shifted] > 0 else zero + 1) << code.EXACT_SHIFT
    tabulated_zero, sign = numbers[f"{tabulated}_zero_point"], signs[tabulated]
    scale = numbers[f"{tabulated}_multiplier"], numbers[f"{tabulated}_shift"]

    def summand(value: int) -> int:
        raised = (value - tabulated_zero) << HEADROOM_BITS["int8"]
        return sign * requantized(raised, *scale) + constant

    table = [summand(value) for value in (*range(128), *range(-128, 0))]
    if is_compact:
        table = [tabulated_zero, *scale, sign, constant]
    made = elementwise_call(
        call,
        partial(DspElementwise, is_compact=is_compact),
        code.ADD if signs[shifted] > 0 else code.SUBTRACT,
        [*scaling, 0, *table],
        is_swapped=tabulated == "right",
    )
    return made if isinstance(made, str) else replace(made, heeds_compact=COMPACT_LITTLE)


def _prelu_call(call: KernelCall, numbers: Mapping[str, int]) -> KernelCall | str:
    scaling = _scaling("negative", numbers)
    if isinstance(scaling, str):
        return scaling
    zero_point, made = numbers["left_zero_point"], numbers["output_zero_point"]
    ratio = numbers["output_multiplier"], numbers["output_shift"]
    table = lookup_table(lambda q: requantized(q - zero_point, *ratio) + made).view(np.int32)
    return elementwise_call(call, DspElementwise, code.PRELU, [*scaling, zero_point, *table])


def _scaling(ratio: str, numbers: Mapping[str, int]) -> list[int] | str:
    """The first seven numbers of an operator whose output is scaled by this ratio."""
    right = -numbers[f"{ratio}_shift"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    offset = (numbers["output_zero_point"] << right) + (1 << (right - 1))
    halves = [(-numbers[f"{side}_zero_point"] & 0xFFFF) * 0x10001 for side in ("left", "right")]
    limits = numbers["low"], numbers["high"]
    return [numbers[f"{ratio}_multiplier"], offset, right, *limits, *halves]
