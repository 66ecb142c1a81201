"""SOFTMAX of int8 to int8 or int16, and LOG_SOFTMAX of int8, all in integers.

exp() is a table over the 256 differences to a row's largest element. The reference evaluates it in
fixed point for each element; the table holds the very same values, computed here once per layer, so
that the device needs neither floats nor the polynomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.attributes import LogSoftmax, Softmax
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.operands import (
    input_of,
    kernel_call,
    output_of,
    quantization_of,
)
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
        parameters = buffers(input="int8", exponentials="int32", output=self.result)
        return RoutineCall(self._function, parameters, (self.rows, self.depth))

    def texts(self, core: str) -> tuple[str, ...]:
        return tuple(map(shared_text, ("utvm_word", "utvm_softmax_sum", self._function)))

    @property
    def _function(self) -> str:
        return "utvm_softmax" if self.result == "int8" else "utvm_softmax_to_int16"


@dataclass(frozen=True)
class LogSoftmaxRows(RoutineKernel):
    """LOG_SOFTMAX of each row, with the exponentials of SOFTMAX."""

    rows: int
    depth: int

    @property
    def name(self) -> str:
        return f"log_softmax_{self.rows}x{self.depth}"

    why: ClassVar[str] = SoftmaxRows.why

    @property
    def routine(self) -> RoutineCall:
        tables = buffers(input="int8", exponentials="int32")
        scalars = ("multiplier", "shift", "inverse", "inverse_shift", "most")
        parameters = (*tables, *scalars, *buffers(output="int8"))
        return RoutineCall("utvm_log_softmax", parameters, (self.rows, self.depth))

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_word"), shared_text("utvm_log_softmax")


def lower_softmax(graph: Graph, operator: Operator) -> KernelCall:
    """SOFTMAX along the last dimension."""
    assert isinstance(operator.attributes, Softmax)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    table = exponential_table(quantization_of(source).scale, operator.attributes.beta)
    *outer, depth = source.shape
    kernel = SoftmaxRows(math.prod(outer), depth, result.dtype)
    # A row is summed up before its first element is written.
    in_place = (0,) if result.dtype == source.dtype else ()
    return kernel_call(graph, operator, kernel, {"exponentials": table}, in_place=in_place)


def lower_log_softmax(graph: Graph, operator: Operator) -> KernelCall:
    """LOG_SOFTMAX along the last dimension."""
    assert isinstance(operator.attributes, LogSoftmax)
    _, source = input_of(graph, operator, 0)
    scale = quantization_of(source).scale
    multiplier, shift, largest = difference_scaling(scale, 1.0)
    inverse, inverse_shift = quantize_multiplier((1 << (31 - shift)) / multiplier)
    *outer, depth = source.shape
    return kernel_call(
        graph,
        operator,
        LogSoftmaxRows(math.prod(outer), depth),
        {
            "exponentials": exponential_table(scale, 1.0),
            "multiplier": multiplier,
            "shift": shift,
            "inverse": inverse,
            "inverse_shift": inverse_shift,
            "most": largest,
        },
        in_place=(0,),
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


LOWERINGS = {"LOG_SOFTMAX": lower_log_softmax, "SOFTMAX": lower_softmax}
