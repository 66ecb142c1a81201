"""Native kernels that are one call of a C routine on whole buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from utvm_deploy.kernels.contract.call import TensorArgument
from utvm_deploy.kernels.contract.driver import Buffer, Driver, KernelParameter, Operand
from utvm_deploy.kernels.contract.operation import Operation, Parameters


@dataclass(frozen=True)
class RoutineCall:
    """A routine and what it is called with: parameters, scratch, numbers, in this order."""

    function: str
    parameters: tuple[KernelParameter, ...]  # in the order of ``KernelCall.arguments``
    numbers: tuple[int, ...] = ()
    scratch: tuple[Operand, ...] = ()

    def drive(self, c: Driver) -> None:
        given = (one if isinstance(one, str) else one.at() for one in self.parameters)
        scratch = (one.at() for one in self.scratch)
        c.call(self.function, *given, *scratch, *self.numbers)


@dataclass(frozen=True, kw_only=True)
class CRoutine(RoutineCall):
    """A native kernel that is only this call, as data."""

    name: str
    why: str
    c_texts: tuple[str, ...] = field(repr=False)
    #: Gives further C texts, whose assembly is ordered for a core.
    assembly: Callable[[str], tuple[str, ...]] | None = field(default=None, repr=False)

    def texts(self, core: str) -> tuple[str, ...]:
        return (*(self.assembly(core) if self.assembly else ()), *self.c_texts)


class RoutineKernel:
    """A base: a class with ``name``, ``why``, ``texts`` and ``routine`` becomes a native kernel."""

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
        self.routine.drive(c)


def parameters_of(
    op: Operation, given: Parameters, outputs: tuple[str, ...] = ("output",)
) -> tuple[KernelParameter, ...]:
    """The parameters of a routine that ``Operation.call`` calls with the first input and ``given``.

    ``outputs`` are the names of the operator's outputs.
    """

    def parameter(name: str, value: object) -> KernelParameter:
        if isinstance(value, TensorArgument):
            return Buffer(name, op.graph.tensors[value.tensor].dtype)
        return Buffer(name, value.dtype.name) if isinstance(value, np.ndarray) else name

    made = (op.graph.tensors[position].dtype for position in op.operator.outputs)
    return (
        Buffer("input", op.source.dtype),
        *(parameter(name, value) for name, value in given.items()),
        *(Buffer(name, dtype) for name, dtype in zip(outputs, made, strict=True)),
    )
