"""ADD, SUB, MUL, PRELU, MINIMUM and MAXIMUM for cores with the DSP extension, broadcast or not.

ADD and SUB: the reference scales both sides by 2**20 and the ratio of their scales to twice the
larger one. For the side with the larger scale the ratio is one half: that side is exactly its value
shifted by 19. What the other side contributes has 256 values, which are computed here with its
rounding, together with both zero points; a compact kernel computes them itself. PRELU looks up what
is positive and multiplies the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.native.dsp import pairs_code as code
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT
from utvm_deploy.kernels.portable.elementwise import (
    BroadcastAdd,
    BroadcastExtremum,
    BroadcastMultiply,
    BroadcastPrelu,
)
from utvm_deploy.kernels.portable.lookup import lookup_table
from utvm_deploy.records.candidate import COMPACT_LITTLE

# The multiplier and shift of one half.
_HALF = (1 << 30, 0)
_WORD = 4
#: Of a sum: what is looked up, and what makes it (see ``utvm_tabulate_sum``).
TABLE_WORDS, SUM_NUMBERS = 256, 5


@dataclass(frozen=True)
class DspPairs:
    """Merged dimensions; a side that does not follow one is repeated along it."""

    operation: str
    extents: tuple[int, ...]
    left_follows: tuple[bool, ...]
    right_follows: tuple[bool, ...]
    table: int = 0  # how many words lie behind the numbers
    is_compact: bool = False  # the table of a sum is made in scratch, of a few more numbers

    @property
    def name(self) -> str:
        name = f"{self.operation}_{label(self.extents)}"
        sides = ("".join("01"[f] for f in s) for s in (self.left_follows, self.right_follows))
        all_follow = all((*self.left_follows, *self.right_follows))
        return f"{name}_dsp" if all_follow else f"{name}_{'_'.join(sides)}_dsp"

    @property
    def run(self) -> tuple[int, int, int, int]:
        """Dimensions outside a run, the run's elements, and after how many each side repeats."""
        *_, last = extents = self.extents
        follows = [self.left_follows[-1], self.right_follows[-1]]
        if not all(follows):
            return len(extents) - 1, last, int(not follows[0]), int(not follows[1])
        if len(extents) > 1:
            # Neighbours are not treated alike: one of the sides repeats what is within.
            periods = [0 if s[-2] else last for s in (self.left_follows, self.right_follows)]
            return len(extents) - 2, extents[-2] * last, periods[0], periods[1]
        return 0, last, 0, 0

    @property
    def why(self) -> str:
        how = {
            code.ADD: "one side from a table",
            code.SUBTRACT: "one side from a table",
            code.PRELU: "what is positive from a table",
        }
        return f"DSP assembly, {how.get(self.operation, 'four bytes at a time')}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        left, right = (
            Operand(name, (math.prod(self._extents_of(follows)),), self._dtype)
            for name, follows in (("left", self.left_follows), ("right", self.right_follows))
        )
        count = code.NUMBERS + SUM_NUMBERS if self.is_compact else self._numbers
        numbers = Operand("numbers", (count,), "int32")
        return left, right, numbers, Operand("output", (math.prod(self.extents),), self._dtype)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (Operand("made_numbers", (self._numbers,), "int32"),) if self.is_compact else ()

    def texts(self, core: str) -> tuple[str, ...]:
        texts = code.pairs_texts(core, self.operation)
        return (*texts, helper("utvm_tabulate_sum")) if self.is_compact else texts

    def drive(self, c: Driver) -> None:
        left, right, numbers, output = self._operands
        read = numbers
        for made in self.scratch:
            c.call("utvm_tabulate_sum", numbers.at(), made.at())
            read = made
        outer, count, *periods = self.run
        all_follow = (True,) * len(self.extents)
        with ExitStack() as loops:
            counters = [
                loops.enter_context(c.loop(f"axis_{axis}", extent))
                for axis, extent in enumerate(self.extents[:outer])
            ]
            first, second, result = (
                one.at(_place(counters, self._strides(follows)))
                for one, follows in (
                    (left, self.left_follows),
                    (right, self.right_follows),
                    (output, all_follow),
                )
            )
            c.call(self._function, first, second, read.at(), result, count, *periods)

    @property
    def _operands(self) -> list[Operand]:
        return [one for one in self.parameters if isinstance(one, Operand)]

    @property
    def _dtype(self) -> str:
        """Of the elements."""
        return "int8"

    @property
    def _numbers(self) -> int:
        """Words that the function reads."""
        return code.NUMBERS + self.table

    @property
    def _function(self) -> str:
        """The C function of a run."""
        return f"utvm_{self.operation}_pairs"

    def _extents_of(self, follows: tuple[bool, ...]) -> list[int]:
        return [e if f else 1 for e, f in zip(self.extents, follows, strict=True)]

    def _strides(self, follows: tuple[bool, ...]) -> list[int]:
        extents = self._extents_of(follows)
        return [
            math.prod(extents[axis + 1 :]) if follows[axis] else 0 for axis in range(len(extents))
        ]


def _place(counters: Sequence[Index], strides: Sequence[int]) -> Index:
    """Where a run of a side begins."""
    place = Index()
    for counter, stride in zip(counters, strides, strict=False):
        place = place + counter * stride
    return place


def dsp_pairs_call(call: KernelCall, *, is_compact: bool = False) -> KernelCall | str:
    """The call instead of the generic one."""
    kernel = call.kernel
    numbers = {a.name: a.value for a in call.arguments if isinstance(a, ScalarArgument)}
    if isinstance(kernel, BroadcastAdd):
        return _sum_call(call, kernel, numbers, is_compact=is_compact)
    if isinstance(kernel, BroadcastMultiply):
        scaling = _scaling("output", numbers)
        return scaling if isinstance(scaling, str) else _call(call, code.MULTIPLY, scaling)
    if isinstance(kernel, BroadcastPrelu):
        return _prelu_call(call, numbers)
    if isinstance(kernel, BroadcastExtremum):
        return _call(call, code.EXTREMUM, [0] * 7 + [0 if kernel.takes_largest else -1])
    return ""


def _sum_call(
    call: KernelCall, kernel: BroadcastAdd, numbers: dict[str, int], *, is_compact: bool
) -> KernelCall | str:
    scales = [(numbers[f"{n}_multiplier"], numbers[f"{n}_shift"]) for n in ("left", "right")]
    # Where both are one half, the left one is: the right one is then negated in its table.
    shifted = 0 if scales[0] == _HALF else 1
    if scales[shifted] != _HALF:
        return "no side has the scale one half"
    scaling = _scaling("output", numbers)
    if isinstance(scaling, str):
        return scaling
    names = ("left", "right")
    looked_up_zero, shifted_zero = (
        numbers[f"{names[side]}_zero_point"] for side in (1 - shifted, shifted)
    )
    signs = (1, -1 if kernel.subtracts else 1)
    # The assembly adds the other side's bits, flipped where it is subtracted.
    bits = (-shifted_zero if signs[shifted] > 0 else shifted_zero + 1) << code.EXACT_SHIFT

    def entry(q: int) -> int:
        raised = (q - looked_up_zero) << 20
        return signs[1 - shifted] * requantized(raised, *scales[1 - shifted]) + bits

    operation = code.SUBTRACT if signs[shifted] < 0 else code.ADD
    table = [entry(q) for q in (*range(128), *range(-128, 0))]
    if is_compact:
        table = [looked_up_zero, *scales[1 - shifted], signs[1 - shifted], bits]
    entries = np.array(table, dtype=np.int32)
    found = _call(call, operation, scaling, entries, is_swapped=shifted == 0)
    if isinstance(found, str):
        return found
    pairs = found.kernel
    assert isinstance(pairs, DspPairs)
    pairs = replace(pairs, table=TABLE_WORDS, is_compact=is_compact)
    return replace(found, kernel=pairs, heeds_compact=COMPACT_LITTLE)


def _prelu_call(call: KernelCall, numbers: dict[str, int]) -> KernelCall | str:
    scaling = _scaling("negative", numbers)
    if isinstance(scaling, str):
        return scaling
    zero_point, made = numbers["left_zero_point"], numbers["output_zero_point"]
    ratio = numbers["output_multiplier"], numbers["output_shift"]
    table = lookup_table(lambda q: requantized(q - zero_point, *ratio) + made)
    scaling[7] = zero_point
    return _call(call, code.PRELU, scaling, table.view(np.int32))


def _scaling(ratio: str, numbers: dict[str, int]) -> list[int] | str:
    """The numbers of an operator whose output is scaled by this ratio."""
    right = -numbers[f"{ratio}_shift"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    offset = (numbers["output_zero_point"] << right) + (1 << (right - 1))
    halves = [(-numbers[f"{side}_zero_point"] & 0xFFFF) * 0x10001 for side in ("left", "right")]
    limits = numbers["low"], numbers["high"]
    return [numbers[f"{ratio}_multiplier"], offset, right, *limits, *halves, 0]


def _call(
    call: KernelCall,
    operation: str,
    numbers: list[int],
    table: Array | None = None,
    *,
    is_swapped: bool = False,
) -> KernelCall | str:
    kernel: Any = call.kernel
    follows = [kernel.left_follows, kernel.right_follows]
    sides = list(call.arguments[:2])
    if is_swapped:
        follows.reverse()
        sides.reverse()
    words = np.array(numbers, dtype=np.int64).astype(np.uint32).view(np.int32)
    if table is not None:
        words = np.concatenate([words, table])
    behind = words.size - code.NUMBERS
    pairs = DspPairs(operation, kernel.extents, follows[0], follows[1], behind)
    if pairs.run[1] < _WORD:
        return f"runs of {pairs.run[1]} bytes"
    arguments = (*sides, ConstantArgument("numbers", words), call.arguments[-1])
    return replace(call, kernel=pairs, arguments=arguments)
