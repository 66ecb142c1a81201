"""ADD, SUB, MUL, PRELU, MINIMUM and MAXIMUM of int8, and MUL of int16, with the DSP extension.

Of a sum, the side with the scale one half is exactly its value shifted by 19. The other side
contributes one of 256 values, which a table holds with the reference's rounding and both zero
points. A compact kernel makes this table in scratch, and one of few elements has none. PRELU takes
positive values from a table and multiplies the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.graph.rounding import HEADROOM_BITS
from utvm_deploy.kernels.contract.c_texts import bytes_texts
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN, requantized
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.dsp.assembly import elementwise_code as code
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.kernels.native.elementwise import (
    ElementwiseKernel,
    Loop,
    Side,
    elementwise_call,
    sides_of_sum,
)
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT
from utvm_deploy.kernels.portable.integers.elementwise import (
    Broadcast,
    BroadcastAdd,
    BroadcastExtremum,
    BroadcastMultiply,
    BroadcastPrelu,
)
from utvm_deploy.kernels.portable.integers.lookup import lookup_table
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Operation -> words of its table: 256 summands, or 256 bytes.
_TABLE_WORDS = {code.ADD: 256, code.SUBTRACT: 256, code.PRELU: 64}
#: What ``utvm_tabulate_sum`` makes the table of a sum from.
_TABLE_SOURCE_WORDS = 5
#: Numbers of ``utvm_direct_sum`` after those of every operator.
_DIRECT_WORDS = 7
#: What it shifts the side by that is requantized: a bit more than the reference, as it doubles it.
_RAISED = HEADROOM_BITS["int8"] + 1
#: Elements for which the misses of a table in flash cost more than it saves.
_MOST_DIRECT = 32


@dataclass(frozen=True)
class DspElementwise(ElementwiseKernel):
    """An operator of int8, or a product of int16."""

    is_compact: bool = False  # the table of a sum is made in scratch
    is_direct: bool = False  # a sum without a table

    family = "dsp"

    @property
    def name(self) -> str:
        return f"{super().name}_direct" if self.is_direct else super().name

    @property
    def loop(self) -> Loop:
        why = "DSP assembly, four elements at a time"
        if self.dtype == "int16":
            return Loop(f"{code.INT16_MULTIPLY}_all", code.SCALING_WORDS, why)
        if self.is_direct:
            why = "C, one element at a time, without a table"
            return Loop("utvm_direct_sum", code.NUMBERS + _DIRECT_WORDS, why)
        table = _TABLE_WORDS.get(self.operation, 0)
        if table:
            why += ", with a table"
        if self.is_compact:
            table = _TABLE_SOURCE_WORDS
        return Loop(f"utvm_{self.operation}_all", code.NUMBERS + table, why)

    def loop_texts(self, core: str) -> tuple[str, ...]:
        if self.dtype == "int16":
            return code.int16_multiply_texts(core)
        if self.is_direct:
            return (helper("utvm_direct_sum"),)
        # Runs of a side that is repeated are copied and filled.
        copied = bytes_texts(core) if self.is_broadcast else ()
        texts = (*copied, *code.loop_texts(core, self.operation))
        return (*texts, helper("utvm_tabulate_sum")) if self.is_compact else texts

    @property
    def runs_text(self) -> str:
        return helper("utvm_runs") if self.dtype == "int8" else super().runs_text

    @property
    def scratch(self) -> tuple[Operand, ...]:
        words = code.NUMBERS + _TABLE_WORDS.get(self.operation, 0)
        return (Operand("made_numbers", (words,), "int32"),) if self.is_compact else ()

    def drive(self, c: Driver) -> None:
        _, _, numbers, _ = self.parameters
        if self.is_compact:
            (made,) = self.scratch
            c.call("utvm_tabulate_sum", numbers.at(), made.at())
            numbers = made
        self.drive_runs(c, numbers)


def build_elementwise(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call of an int8 operator instead of the portable one, or why there is none."""
    call, kernel = layer.portable, layer.portable.kernel
    if isinstance(kernel, BroadcastExtremum):
        # With all bits flipped, the smaller value is the larger one.
        flip = 0 if kernel.takes_largest else -1
        return elementwise_call(call, DspElementwise, code.EXTREMUM, [*[0] * 7, flip])
    if not isinstance(kernel, BroadcastAdd | BroadcastMultiply | BroadcastPrelu):
        return ""
    scaling = _scaling(call, "negative" if isinstance(kernel, BroadcastPrelu) else "output")
    if isinstance(scaling, str):
        return scaling
    if isinstance(kernel, BroadcastAdd):
        return _sum_call(call, scaling, is_compact=wish.compact > 0)
    if isinstance(kernel, BroadcastPrelu):
        zero, table = _positive_values(call)
        return elementwise_call(call, DspElementwise, code.PRELU, [*scaling, zero, *table])
    return elementwise_call(call, DspElementwise, code.MULTIPLY, [*scaling, 0])


def int16_multiply_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    scaling = _scaling(call, "output")
    if isinstance(scaling, str):
        return scaling
    multiplier, rounding, right, _, high, *_ = scaling
    # Twice the product of -32768 and -32768 saturates to one less.
    saturated = ((2**31 - 1) * multiplier + (rounding << 32) + (1 << 31)) >> (32 + right)
    if min(saturated, high) != min(requantized(1 << 30, multiplier, -right), high):
        return "the largest product would not be exact"
    return elementwise_call(call, DspElementwise, code.MULTIPLY, scaling[: code.SCALING_WORDS])


def _sum_call(call: KernelCall, scaling: list[int], *, is_compact: bool) -> KernelCall | str:
    sides = sides_of_sum(call)
    if isinstance(sides, str):
        return sides
    tabulated, shifted = sides
    direct = _direct_call(call, scaling, tabulated, shifted)
    if direct is not None:
        return direct
    zero = tabulated.zero_point
    # The routine adds the shifted side, or, to subtract it, all of its bits flipped.
    constant = -shifted.zero_point if shifted.sign > 0 else shifted.zero_point + 1
    constant <<= code.EXACT_SHIFT

    def summand(value: int) -> int:
        raised = (value - zero) << HEADROOM_BITS["int8"]
        return tabulated.sign * requantized(raised, *tabulated.scale) + constant

    table = [summand(value) for value in (*range(128), *range(-128, 0))]
    if is_compact:
        table = [zero, *tabulated.scale, tabulated.sign, constant]
    made = elementwise_call(
        call,
        partial(DspElementwise, is_compact=is_compact),
        code.ADD if shifted.sign > 0 else code.SUBTRACT,
        [*scaling, 0, *table],
        is_swapped=tabulated.name == "right",
    )
    return made if isinstance(made, str) else replace(made, heeds_compact=COMPACT_LITTLE)


def _direct_call(
    call: KernelCall, scaling: list[int], tabulated: Side, shifted: Side
) -> KernelCall | None:
    """The call for a sum of few elements; None for more, and where it would not be exact."""
    kernel = call.kernel
    assert isinstance(kernel, Broadcast)
    follows = (*kernel.left_follows, *kernel.right_follows)
    if math.prod(kernel.extents) > _MOST_DIRECT or not all(follows):
        return None
    zero, (multiplier, shift), right = tabulated.zero_point, tabulated.scale, -tabulated.scale[1]
    if right <= 0 or scaling[3:5] != [INT8_MIN, INT8_MAX]:
        return None
    half = 1 << (right - 1)
    for value in range(-128, 128):
        raised = (value - zero) << HEADROOM_BITS["int8"]
        rounded = ((2 * raised * multiplier + (1 << 31)) >> 32) + half + (raised >> 31)
        if rounded >> right != requantized(raised, multiplier, shift):
            return None
    factor = shifted.sign << code.EXACT_SHIFT
    numbers = [zero << _RAISED, multiplier, half, right, tabulated.sign, factor]
    made = elementwise_call(
        call,
        partial(DspElementwise, is_direct=True),
        code.ADD if shifted.sign > 0 else code.SUBTRACT,
        [*scaling, 0, *numbers, -shifted.zero_point * factor],
        is_swapped=tabulated.name == "right",
    )
    return None if isinstance(made, str) else made


def _positive_values(call: KernelCall) -> tuple[int, Array]:
    """The zero point of PRELU's left side, and a table of its outputs for positive values."""
    numbers = scalars(call)
    zero, output_zero = numbers["left_zero_point"], numbers["output_zero_point"]
    ratio = numbers["output_multiplier"], numbers["output_shift"]
    table = lookup_table(lambda q: requantized(q - zero, *ratio) + output_zero)
    return zero, table.view(np.int32)


def _scaling(call: KernelCall, ratio: str) -> list[int] | str:
    """The first seven numbers of an operator whose output is scaled by this ratio."""
    numbers = scalars(call)
    right = -numbers[f"{ratio}_shift"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    names = ("output_zero_point", "left_zero_point", "right_zero_point")
    output_zero, *zeros = (numbers.get(name, 0) for name in names)
    offset = (output_zero << right) + (1 << (right - 1))
    halves = [(-zero & 0xFFFF) * 0x10001 for zero in zeros]
    limits = numbers["low"], numbers["high"]
    return [numbers[f"{ratio}_multiplier"], offset, right, *limits, *halves]
