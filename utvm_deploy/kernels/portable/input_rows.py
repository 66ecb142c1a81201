"""INPUT_ROWS: the place of rows that the caller pushes; ``NAME_push_rows`` copies them there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.operation import Operation


@dataclass(frozen=True)
class PushedRows:
    """Nothing is left to do: the rows are there when this layer's turn comes."""

    count: int
    dtype: str

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "the caller pushes these rows"

    @property
    def name(self) -> str:
        return f"pushed_rows_{self.dtype}_{self.count}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return (Operand("output", (self.count,), self.dtype),)

    def texts(self, core: str) -> tuple[str, ...]:
        return ()

    def drive(self, c: Driver) -> None:
        c.call("(void)", Operand("output", (self.count,), self.dtype).at())


def lower_input_rows(op: Operation) -> KernelCall:
    """INPUT_ROWS of any type. The model's input has no place in the arena, so it is not passed."""
    (output,) = op.operator.outputs
    kernel = PushedRows(math.prod(op.result.shape), op.result.dtype)
    return KernelCall(kernel, (TensorArgument(output),))


LOWERINGS = {"INPUT_ROWS": lower_input_rows}
