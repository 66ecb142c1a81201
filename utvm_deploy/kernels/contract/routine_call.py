"""Native kernels that are one call of a C routine on whole buffers."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.kernels.contract.driver import Driver, KernelParameter, Operand


@dataclass(frozen=True)
class RoutineCall:
    """A routine and what it is called with: parameters, scratch, numbers, in this order."""

    function: str
    parameters: tuple[KernelParameter, ...]  # in the order of ``KernelCall.arguments``
    numbers: tuple[int, ...] = ()
    scratch: tuple[Operand, ...] = ()


class RoutineKernel:
    """Makes a native kernel of a class with ``name``, ``why``, ``texts`` and ``routine``."""

    @property
    def routine(self) -> RoutineCall:
        """The call that does all the work."""
        raise NotImplementedError

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        return self.routine.parameters

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return self.routine.scratch

    def drive(self, c: Driver) -> None:
        routine = self.routine
        given = (one if isinstance(one, str) else one.at() for one in routine.parameters)
        scratch = (one.at() for one in routine.scratch)
        c.call(routine.function, *given, *scratch, *routine.numbers)
