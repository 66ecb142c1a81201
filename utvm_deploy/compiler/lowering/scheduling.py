"""Kernels -> C functions. Each function is made once, however often it is asked for.

How much scratch a portable kernel wants is known once it is lowered. Planning asks for the scratch
of many kernels before the model has its final ones, so what was lowered is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.compiler.arena.overlap import may_share
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.lowering.library_kernel import schedule_library_kernel, scratch_sizes
from utvm_deploy.compiler.lowering.lowered_kernel import LoweredKernel, lower_kernel
from utvm_deploy.compiler.lowering.program import ScheduledKernel, ScheduledStep
from utvm_deploy.kernels.contract.call import (
    AnyKernel,
    LibraryKernel,
    NativeKernel,
    OwnKernel,
    is_native,
)


class Scheduler:
    """The kernels of one model on one core; ``prefix`` begins the name of each function."""

    def __init__(self, core: str, prefix: str) -> None:
        self._core = core
        self._prefix = prefix
        self._lowered: dict[_Wanted, LoweredKernel] = {}
        self._scratch: dict[NativeKernel, tuple[int, ...]] = {}

    def scratch_of(self, step: Step) -> tuple[int, ...]:
        """The bytes of each piece of scratch that a step's kernel wants."""
        kernel = step.call.kernel
        if isinstance(kernel, LibraryKernel):
            return scratch_sizes(kernel)
        if is_native(kernel):
            if kernel not in self._scratch:
                pieces = (one.size_bytes for one in kernel.scratch if not one.is_on_stack)
                self._scratch[kernel] = tuple(pieces)
            return self._scratch[kernel]
        lowered = self._lower(kernel, self._symbol(kernel), step, may_share(step.call))
        return tuple(piece.size_bytes for piece in lowered.function.scratch)

    def schedule(self, sequence: Sequence[Step | View]) -> tuple[ScheduledStep, ...]:
        """The C function of every step; steps with equal kernels share one."""
        steps = [item for item in sequence if isinstance(item, Step)]
        # If one caller works in place, the function that all share must allow it.
        may_alias: dict[AnyKernel, bool] = {}
        for step in steps:
            kernel = step.call.kernel
            may_alias[kernel] = may_alias.get(kernel, False) or may_share(step.call)
        scheduled: dict[AnyKernel, ScheduledKernel] = {}
        names: set[str] = set()
        for step in steps:
            kernel = step.call.kernel
            if kernel in scheduled:
                continue
            symbol = _unused(self._symbol(kernel), names)
            if isinstance(kernel, LibraryKernel):
                scheduled[kernel] = schedule_library_kernel(kernel, symbol)
            else:
                made = self._lower(kernel, symbol, step, may_alias[kernel])
                scheduled[kernel] = ScheduledKernel(made.function, made.why, made.ir)
        return tuple(ScheduledStep(step, scheduled[step.call.kernel]) for step in steps)

    def _symbol(self, kernel: AnyKernel) -> str:
        return f"{self._prefix}_{kernel.name}"

    def _lower(self, kernel: OwnKernel, symbol: str, step: Step, may_alias: bool) -> LoweredKernel:
        outputs = len(step.operator.outputs)
        wanted = _Wanted(kernel, symbol, outputs, may_alias)
        if wanted not in self._lowered:
            self._lowered[wanted] = lower_kernel(
                kernel, symbol, self._core, outputs=outputs, may_alias=may_alias
            )
        return self._lowered[wanted]


@dataclass(frozen=True)
class _Wanted:
    """A C function to be made."""

    kernel: OwnKernel
    symbol: str
    outputs: int
    may_alias: bool


def _unused(wanted: str, names: set[str]) -> str:
    name, number = wanted, 2
    while name in names:
        name, number = f"{wanted}_{number}", number + 1
    names.add(name)
    return name
