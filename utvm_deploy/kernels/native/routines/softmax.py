"""SOFTMAX of int8 to int8 or int16, and LOG_SOFTMAX of int8, all in integers.

exp() is a table over the 256 differences to a row's largest element. The reference evaluates it in
fixed point for each element. The table holds exactly these values, computed here once per layer. So
the device needs neither floats nor the polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.requantization import (
    high_product,
    quantize_multiplier,
    requantized,
    rounded_shift,
)
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of

# Fixed-point formats of the reference: Q5.26 for differences, Q0.31 for exponentials.
_DIFFERENCE_INTEGER_BITS = 5
_DIFFERENCE_FRACTION_BITS = 31 - _DIFFERENCE_INTEGER_BITS
_ONE = (1 << 31) - 1  # the largest Q0.31


def lower_softmax(op: Operation) -> KernelCall:
    """SOFTMAX along the last dimension."""
    scale = quantization_of(op.source).scale
    is_int8 = op.result.dtype == "int8"
    given = {"exponentials": exponential_table(scale, op.attributes(Softmax).beta)}
    function = "utvm_softmax" if is_int8 else "utvm_softmax_to_int16"
    texts = ("utvm_word", "utvm_softmax_sum", function)
    return _rows_call(op, "softmax", given, texts)


def lower_log_softmax(op: Operation) -> KernelCall:
    """LOG_SOFTMAX along the last dimension."""
    scale = quantization_of(op.source).scale
    multiplier, shift, largest = difference_scaling(scale, 1.0)
    inverse, inverse_shift = quantize_multiplier((1 << (31 - shift)) / multiplier)
    given: Parameters = {
        "exponentials": exponential_table(scale, 1.0),
        "multiplier": multiplier,
        "shift": shift,
        "inverse": inverse,
        "inverse_shift": inverse_shift,
        "most": largest,
    }
    return _rows_call(op, "log_softmax", given, ("utvm_word", "utvm_log_softmax"))


def _rows_call(op: Operation, name: str, given: Parameters, texts: Sequence[str]) -> KernelCall:
    """The call of the last of ``texts``, which does row by row."""
    source, result = op.source, op.result
    *outer, depth = source.shape
    rows, is_same = math.prod(outer), result.dtype == source.dtype
    kernel = CRoutine(
        texts[-1],
        parameters_of(op, given),
        (rows, depth),
        name=f"{name}_{rows}x{depth}" + ("" if is_same else f"_{source.dtype}_{result.dtype}"),
        why="integers only, exponentials from a table",
        c_texts=tuple(map(shared_text, texts)),
    )
    # A row is summed up before its first element is written.
    return op.call(kernel, given, in_place=(0,) if is_same else ())


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
