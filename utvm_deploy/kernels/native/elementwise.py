"""Elementwise operators of two inputs: the skeleton that the routines of the families plug into.

A family has a C function ``LOOP(left, right, numbers, output, count)``. ``numbers`` are int32:
scales, zero points and limits. Without broadcasting, the driver calls it once. Otherwise, the
driver cuts the output into runs, in which one side repeats after a period of elements, and calls
``LOOP_runs(left, right, numbers, output, count, left_period, right_period)`` for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.rounding import HEADROOM_BITS
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.extents import flags_label, label, type_label
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.portable.integers.elementwise import (
    Broadcast,
    BroadcastAdd,
    BroadcastMultiply,
)
from utvm_deploy.kernels.portable.schedules.skeletons import followed_extents, followed_index

#: Shorter runs are not slower in plain C.
LEAST_RUN = 4
#: What ``scaled_call`` computes.
ADD, MULTIPLY = "add", "multiply"
#: The multiplier and the shift of one half.
_HALF = (1 << 30, 0)


class Loop(NamedTuple):
    """A family's C function ``LOOP``."""

    function: str
    number_count: int  # words of ``numbers``, with any table after them
    why: str  # as the report says it


class Side(NamedTuple):
    """How an input of a sum becomes a summand."""

    name: str
    sign: int
    zero_point: int
    scale: tuple[int, int]  # multiplier and shift


class Run(NamedTuple):
    """The part of the output that one call computes."""

    outer: int  # dimensions outside of it
    elements: int
    periods: tuple[int, ...]  # left, right; 0: the side does not repeat; none: no side does


@dataclass(frozen=True)
class ElementwiseKernel:
    """Merged dimensions of the output; a side that does not follow one is repeated along it."""

    operation: str
    extents: tuple[int, ...]
    left_follows: tuple[bool, ...]
    right_follows: tuple[bool, ...]
    dtype: str = "int8"

    family: ClassVar[str]

    @property
    def loop(self) -> Loop:
        """The function that computes elements of which no side repeats."""
        raise NotImplementedError

    def loop_texts(self, core: str) -> tuple[str, ...]:
        """The C of this function and of what it needs, ordered for a core."""
        raise NotImplementedError

    @property
    def runs_text(self) -> str:
        """The C of ``LOOP_runs``, with this name, for int8."""
        return shared_text("utvm_runs")

    @property
    def why(self) -> str:
        return self.loop.why

    @property
    def is_broadcast(self) -> bool:
        """Whether a side is repeated."""
        return not all((*self.left_follows, *self.right_follows))

    @property
    def name(self) -> str:
        sides = ""
        if self.is_broadcast:
            sides = f"_{flags_label(self.left_follows)}_{flags_label(self.right_follows)}"
        size = f"{label(self.extents)}{sides}{type_label(self.dtype)}"
        return f"{self.operation}_{size}_{self.family}"

    @property
    def run(self) -> Run:
        """The longest part in which at most one side repeats."""
        extents, follows = self.extents, (self.left_follows, self.right_follows)
        if not self.is_broadcast:
            return Run(0, math.prod(extents), ())
        *_, last = extents
        if not all(side[-1] for side in follows):
            return Run(len(extents) - 1, last, tuple(0 if side[-1] else 1 for side in follows))
        # Neighbours differ, or they would be merged: a side repeats along the one before the last.
        periods = tuple(0 if side[-2] else last for side in follows)
        return Run(len(extents) - 2, extents[-2] * last, periods)

    @property
    def parameters(self) -> tuple[Operand, ...]:
        numbers = Operand("numbers", (self.loop.number_count,), "int32")
        left, right = (
            Operand(name, followed_extents(self.extents, follows), self.dtype)
            for name, follows in (("left", self.left_follows), ("right", self.right_follows))
        )
        return left, right, numbers, Operand("output", self.extents, self.dtype)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return ()

    def texts(self, core: str) -> tuple[str, ...]:
        texts = self.loop_texts(core)
        if self.is_broadcast:
            names = ("int8_t", element_type(self.dtype).c_type, 5), ("LOOP", self.loop.function, 2)
            texts += (replaced(self.runs_text, *names),)
        return texts

    def drive(self, c: Driver) -> None:
        _, _, numbers, _ = self.parameters
        self.drive_runs(c, numbers)

    def drive_runs(self, c: Driver, numbers: Operand) -> None:
        """Write the calls for all runs; ``numbers`` is where the routine finds them."""
        left, right, _, output = self.parameters
        run = self.run
        function = f"{self.loop.function}{'_runs' if self.is_broadcast else ''}"
        with c.loops("axis", self.extents[: run.outer]) as index:
            first = left.at(*followed_index(index, self.left_follows[: run.outer]))
            second = right.at(*followed_index(index, self.right_follows[: run.outer]))
            places = first, second, numbers.at(), output.at(*index)
            c.call(function, *places, run.elements, *run.periods)


def loop_parameters(dtype: str) -> tuple[str, ...]:
    """The C parameters of ``LOOP``."""
    c_type = element_type(dtype).c_type
    sides = f"const {c_type} *left", f"const {c_type} *right"
    return *sides, "const int32_t *numbers", f"{c_type} *output", "int32_t count"


def sides_of_sum(call: KernelCall) -> tuple[Side, Side] | str:
    """The side that is requantized, then the side whose scale is one half; or why not.

    The reference scales both sides by the ratio of their scales to twice the larger one. So the
    side with the larger scale is only shifted.
    """
    kernel, numbers = call.kernel, scalars(call)
    assert isinstance(kernel, BroadcastAdd)
    left, right = (
        Side(
            name,
            sign,
            numbers.get(f"{name}_zero_point", 0),
            (numbers[f"{name}_multiplier"], numbers[f"{name}_shift"]),
        )
        for name, sign in (("left", 1), ("right", -1 if kernel.subtracts else 1))
    )
    for requantized, halved in ((right, left), (left, right)):
        if halved.scale == _HALF:
            return requantized, halved
    return "no side has the scale one half"


def elementwise_call(
    call: KernelCall,
    make: Callable[..., ElementwiseKernel],
    operation: str,
    numbers: Sequence[int],
    *,
    is_swapped: bool = False,
) -> KernelCall | str:
    """The call of the kernel that ``make`` makes, or why there is none.

    ``is_swapped``: the kernel's left side is the right one of the portable call. ``numbers`` may be
    int32 or uint32.
    """
    kernel = call.kernel
    assert isinstance(kernel, Broadcast)
    order = -1 if is_swapped else 1
    follows = (kernel.left_follows, kernel.right_follows)[::order]
    made = make(operation, kernel.extents, *follows, kernel.dtype)
    if made.run.elements < LEAST_RUN:
        return f"runs of {made.run.elements} elements"
    words = np.array(numbers, dtype=np.int64).astype(np.uint32).view(np.int32)
    *sides, output = (*call.arguments[:2][::order], call.arguments[-1])
    arguments = (*sides, ConstantArgument("numbers", words), output)
    return replace(call, kernel=made, arguments=arguments)


def scaled_text(operation: str, dtype: str) -> str:
    """The C of ``LOOP`` that takes the numbers of ``scaled_call``."""
    text = shared_text(f"utvm_scaled_{operation}")
    return replaced(text, ("int8_t", element_type(dtype).c_type, 1))


def scaled_call(make: Callable[..., ElementwiseKernel], call: KernelCall) -> KernelCall | str:
    """ADD, SUB or MUL instead of the portable call, or why not; empty for other operators.

    The operation is ``ADD``, also for SUB, or ``MULTIPLY``. Every right shift is by 1 or more.
    """
    kernel, numbers = call.kernel, scalars(call)
    if not isinstance(kernel, BroadcastAdd | BroadcastMultiply):
        return ""
    if numbers["output_shift"] >= 0:
        return "the output's scale is one half or more"
    if isinstance(kernel, BroadcastAdd):
        sides = sides_of_sum(call)
        if isinstance(sides, str):
            return sides
        words = _numbers_of_sum(numbers, *sides, HEADROOM_BITS[kernel.dtype])
        is_swapped = sides[0].name == "right"
        return elementwise_call(call, make, ADD, words, is_swapped=is_swapped)
    offsets = (-numbers.get(f"{side}_zero_point", 0) for side in ("left", "right"))
    words = [*offsets, *_output(numbers), numbers["low"], numbers["high"]]
    return elementwise_call(call, make, MULTIPLY, words)


def _numbers_of_sum(
    numbers: Mapping[str, int], requantized: Side, halved: Side, headroom: int
) -> list[int]:
    """How the sides become summands, raised by ``headroom`` bits, and how the sum is scaled."""
    multiplier, shift = requantized.scale
    # A shift by 0 becomes a right shift by 1 of twice as much.
    more = 1 if shift == 0 else 0
    factor = 1 << (headroom + more)
    start = -requantized.zero_point * factor
    other_factor = halved.sign << (headroom - 1)
    offset = -halved.zero_point * other_factor
    summands = start, multiplier, shift - more, other_factor, offset
    limits = numbers["low"], numbers["high"]
    return [*summands, *_output(numbers), factor, *limits, requantized.sign]


def _output(numbers: Mapping[str, int]) -> tuple[int, int, int]:
    """The multiplier, the shift and the zero point."""
    zero_point = numbers.get("output_zero_point", 0)
    return numbers["output_multiplier"], numbers["output_shift"], zero_point
