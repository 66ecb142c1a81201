"""Elementwise operators of two inputs: the skeleton that the routines of the families plug into.

The driver cuts the output into runs, and calls the routine of a family for each. In a run, each
side either advances with the output or repeats after a period. The routine's C parameters are
``left, right, numbers, output, count, left_period, right_period``. A period is in elements; it is
0 for a side that advances. ``numbers`` are int32: scales, zero points and limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.extents import flags_label, label, type_label
from utvm_deploy.kernels.portable.elementwise import Broadcast, BroadcastAdd

#: Plain C is no slower for shorter runs.
LEAST_RUN = 4
#: The multiplier and the shift of one half.
_HALF = (1 << 30, 0)


class Run(NamedTuple):
    """The part of the output that one call computes."""

    outer: int  # dimensions outside of it
    elements: int
    left_period: int
    right_period: int


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
    def why(self) -> str:
        raise NotImplementedError

    @property
    def number_count(self) -> int:
        """Words of ``numbers``, with any table behind them."""
        raise NotImplementedError

    @property
    def function(self) -> str:
        """The C function that computes a run."""
        raise NotImplementedError

    def texts(self, core: str) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        sides = ""
        if not all((*self.left_follows, *self.right_follows)):
            sides = f"_{flags_label(self.left_follows)}_{flags_label(self.right_follows)}"
        size = f"{label(self.extents)}{sides}{type_label(self.dtype)}"
        return f"{self.operation}_{size}_{self.family}"

    @property
    def run(self) -> Run:
        """The longest part in which at most one side repeats."""
        *_, last = extents = self.extents
        follows = self.left_follows, self.right_follows
        if not all(side[-1] for side in follows):
            return Run(len(extents) - 1, last, *(0 if side[-1] else 1 for side in follows))
        if len(extents) == 1:
            return Run(0, last, 0, 0)
        # Merged neighbours differ: along the last dimension but one, a side repeats.
        periods = (0 if side[-2] else last for side in follows)
        return Run(len(extents) - 2, extents[-2] * last, *periods)

    @property
    def parameters(self) -> tuple[Operand, ...]:
        numbers = Operand("numbers", (self.number_count,), "int32")
        left, right = (
            Operand(name, (math.prod(self._side_extents(follows)),), self.dtype)
            for name, follows in (("left", self.left_follows), ("right", self.right_follows))
        )
        return left, right, numbers, Operand("output", (math.prod(self.extents),), self.dtype)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return ()

    def drive(self, c: Driver) -> None:
        _, _, numbers, _ = self.parameters
        self.drive_runs(c, numbers)

    def drive_runs(self, c: Driver, numbers: Operand) -> None:
        """Write the calls for all runs; ``numbers`` is where the routine finds them."""
        left, right, _, output = self.parameters
        run = self.run
        with ExitStack() as loops:
            counters = [
                loops.enter_context(c.loop(f"axis_{axis}", extent))
                for axis, extent in enumerate(self.extents[: run.outer])
            ]
            first = left.at(self._start(counters, self.left_follows))
            second = right.at(self._start(counters, self.right_follows))
            result = output.at(self._start(counters, (True,) * len(self.extents)))
            c.call(self.function, first, second, numbers.at(), result, *run[1:])

    def _start(self, counters: Sequence[Index], follows: tuple[bool, ...]) -> Index:
        """The element at which a run begins."""
        extents = self._side_extents(follows)
        start = Index()
        for axis, counter in enumerate(counters):
            start += counter * (math.prod(extents[axis + 1 :]) if follows[axis] else 0)
        return start

    def _side_extents(self, follows: tuple[bool, ...]) -> list[int]:
        return [e if f else 1 for e, f in zip(self.extents, follows, strict=True)]


def runs_text(loop: str, dtype: str) -> str:
    """The C of ``LOOP_runs``, which repeats a side for ``loop``, a C function without periods."""
    return replaced(shared_text("utvm_runs"), ("int8_t", f"{dtype}_t", 5), ("LOOP", loop, 3))


def sides_of_sum(kernel: BroadcastAdd, numbers: Mapping[str, int]) -> tuple[str, str] | str:
    """The side that is requantized and the other one, whose scale is one half; or why not.

    The reference scales both sides by the ratio of their scales to twice the larger one. So the
    side with the larger scale is only shifted.
    """
    for requantized, halved in (("right", "left"), ("left", "right")):
        if (numbers[f"{halved}_multiplier"], numbers[f"{halved}_shift"]) == _HALF:
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
    arguments = (
        *call.arguments[:2][::order],
        ConstantArgument("numbers", words),
        call.arguments[-1],
    )
    return replace(call, kernel=made, arguments=arguments)
