"""SOFTMAX of int8 to int8 or int16, all in integers.

exp() is a table over the 256 differences to a row's largest element. The reference evaluates it in
fixed point for each element; the table holds the very same values, computed here once per layer, so
that the device needs neither floats nor the polynomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operands import input_of, output_of, quantization_of
from utvm_deploy.kernels.contract.requantization import (
    high_product,
    quantize_multiplier,
    requantized,
    rounded_shift,
)
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel

# Fixed-point formats of the reference: differences to the largest element are Q5.26, exponentials
# Q0.31.
_DIFFERENCE_INTEGER_BITS = 5
_DIFFERENCE_FRACTION_BITS = 31 - _DIFFERENCE_INTEGER_BITS
_ONE = (1 << 31) - 1  # the largest Q0.31


@dataclass(frozen=True)
class SoftmaxRows(RoutineKernel):
    """SOFTMAX of each row; ``exponentials[d]`` is exp(-d * scale * beta) as Q0.31."""

    rows: int
    depth: int
    result: str = "int8"

    @property
    def name(self) -> str:
        types = "" if self.result == "int8" else f"_int8_{self.result}"
        return f"softmax_{self.rows}x{self.depth}{types}"

    why: ClassVar[str] = "integers only, exponentials from a table"

    @property
    def routine(self) -> RoutineCall:
        count = self.rows * self.depth
        buffers = (
            Operand("input", (count,), "int8"),
            Operand("exponentials", (256,), "int32"),
            Operand("output", (count,), self.result),
        )
        return RoutineCall(self._function, buffers, (self.rows, self.depth))

    def texts(self, core: str) -> tuple[str, ...]:
        return tuple(map(shared_text, ("utvm_word", "utvm_softmax_sum", self._function)))

    @property
    def _function(self) -> str:
        return "utvm_softmax" if self.result == "int8" else "utvm_softmax_to_int16"


def lower_softmax(graph: Graph, operator: Operator) -> KernelCall:
    """SOFTMAX along the last dimension."""
    assert isinstance(operator.attributes, Softmax)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    depth = source.shape[-1]
    rows = int(np.prod(source.shape[:-1], dtype=np.int64))
    table = exponential_table(quantization_of(source).scale, operator.attributes.beta)
    return KernelCall(
        SoftmaxRows(rows, depth, result.dtype),
        (TensorArgument(position), ConstantArgument("exponentials", table), TensorArgument(output)),
        # A row is summed up before its first element is written, over one of the same size.
        in_place=((output, position),) if result.dtype == source.dtype else (),
    )


def exponential_table(scale: float, beta: float) -> Array:
    """exp(-d * scale * beta) for d = 0 .. 255 as Q0.31, zero where the reference leaves it out."""
    multiplier, shift, largest = difference_scaling(scale, beta)
    table = np.zeros(256, dtype=np.int32)
    for difference in range(min(largest, 255) + 1):
        table[difference] = _exponential(requantized(-difference, multiplier, shift))
    return table


def difference_scaling(scale: float, beta: float) -> tuple[int, int, int]:
    """Multiplier and shift that make Q5.26 of a difference, and the largest that fits there."""
    real_multiplier = min(beta * scale * (1 << _DIFFERENCE_FRACTION_BITS), 2.0**31 - 1.0)
    multiplier, shift = quantize_multiplier(real_multiplier)
    whole_range = ((1 << _DIFFERENCE_INTEGER_BITS) - 1) * (1 << _DIFFERENCE_FRACTION_BITS)
    return multiplier, shift, math.floor(whole_range / (1 << shift)) if shift >= 0 else 255


def _exponential(value: int) -> int:
    """exp(value) as Q0.31 for a value <= 0 in Q5.26, as the reference approximates it."""
    if value == 0:
        return _ONE
    quarter = 1 << (_DIFFERENCE_FRACTION_BITS - 2)
    # value = remainder - n / 4 with the remainder in [-1/4, 0), done by polynomial, n by bits.
    remainder = (value & (quarter - 1)) - quarter
    result = _exponential_of_fraction(remainder << _DIFFERENCE_INTEGER_BITS)
    quarters = (remainder - value) // quarter
    for bit in range(_DIFFERENCE_INTEGER_BITS + 2):
        if quarters >> bit & 1:
            factor = round(math.exp(-(2.0 ** (bit - 2))) * 2.0**31)
            result = high_product(result, factor)
    return result


def _exponential_of_fraction(value: int) -> int:
    """exp of a Q0.31 in [-1/4, 0): Taylor's series around -1/8, to the fourth power."""
    center = round(math.exp(-1 / 8) * 2.0**31)
    third = round(2.0**31 / 3)
    x = value + (1 << 28)
    x2 = high_product(x, x)
    x3 = high_product(x2, x)
    x4 = high_product(x2, x2)
    higher = rounded_shift(high_product(rounded_shift(x4, 2) + x3, third) + x2, 1)
    return center + high_product(center, x + higher)


LOWERINGS = {"SOFTMAX": lower_softmax}
