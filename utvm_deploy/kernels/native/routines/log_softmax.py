"""LOG_SOFTMAX of int8, all integer, as the reference has it: SOFTMAX's exponentials, then a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.attributes import LogSoftmax
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operands import input_of, output_of, quantization_of
from utvm_deploy.kernels.contract.requantization import quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.routines.softmax import difference_scaling, exponential_table

_SCALARS = ("multiplier", "shift", "inverse", "inverse_shift", "most")


@dataclass(frozen=True)
class LogSoftmaxRows(RoutineKernel):
    """LOG_SOFTMAX of each row; ``exponentials[d]`` is exp(-d * scale) as Q0.31."""

    rows: int
    depth: int

    @property
    def name(self) -> str:
        return f"log_softmax_{self.rows}x{self.depth}"

    why: ClassVar[str] = "integers only, exponentials from a table"

    @property
    def routine(self) -> RoutineCall:
        count = self.rows * self.depth
        parameters = (
            Operand("input", (count,), "int8"),
            Operand("exponentials", (256,), "int32"),
            *_SCALARS,
            Operand("output", (count,), "int8"),
        )
        return RoutineCall("utvm_log_softmax", parameters, (self.rows, self.depth))

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_word"), shared_text("utvm_log_softmax")


def lower_log_softmax(graph: Graph, operator: Operator) -> KernelCall:
    """LOG_SOFTMAX along the last dimension."""
    assert isinstance(operator.attributes, LogSoftmax)
    position, source = input_of(graph, operator, 0)
    output, _ = output_of(graph, operator)
    depth = source.shape[-1]
    scale = quantization_of(source).scale
    multiplier, shift, most = difference_scaling(scale, 1.0)
    inverse, inverse_shift = quantize_multiplier((1 << (31 - shift)) / multiplier)
    values = (multiplier, shift, inverse, inverse_shift, most)
    scalars = [ScalarArgument(name, value) for name, value in zip(_SCALARS, values, strict=True)]
    table = ConstantArgument("exponentials", exponential_table(scale, 1.0))
    return KernelCall(
        LogSoftmaxRows(math.prod(source.shape[:-1]), depth),
        (TensorArgument(position), table, *scalars, TensorArgument(output)),
        # A row is summed up before its first element is written.
        in_place=((output, position),),
    )


LOWERINGS = {"LOG_SOFTMAX": lower_log_softmax}
