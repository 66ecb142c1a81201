"""ADD and SUB for the scalar family.

The reference requantizes both sides, adds them, and requantizes the sum (``BroadcastAdd``). Each
output between the limits is then one of at most 2**16 sums. So a shorter form can be compared with
the reference for all of them:

    output = (left * M + right * N + C) >> S

M and N are the ratios of the scales times 2**S, or differ by a few units. For given ones, each pair
of inputs has bounds for C, as in ``single_rounding.py``. If a C is within all of them, the form is
exact. Otherwise a table for each side has what the reference adds, and the sum is rounded twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.rounding import HEADROOM_BITS
from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN, requantized
from utvm_deploy.kernels.native.elementwise import ElementwiseKernel, Loop, elementwise_call
from utvm_deploy.kernels.native.layer_tables import scalars
from utvm_deploy.kernels.native.scalar.rounding import TWICE
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT
from utvm_deploy.kernels.native.single_rounding import first_sums
from utvm_deploy.kernels.portable.integers.elementwise import BroadcastAdd

#: How far the factors are searched on both sides of the ratios of scales.
_REACH = 6
_VALUES = np.arange(INT8_MIN, INT8_MAX + 1, dtype=np.int64)
_Wide = NDArray[np.int64]


@dataclass(frozen=True)
class ScalarSum(ElementwiseKernel):
    """A sum or a difference of int8."""

    is_short: bool = True  # one rounding, without tables

    family = "scalar"

    @property
    def name(self) -> str:
        return super().name if self.is_short else f"{super().name}_tables"

    @property
    def loop(self) -> Loop:
        if self.is_short:
            return Loop("utvm_scalar_sum", 6, "C, two products and one rounding")
        return Loop("utvm_scalar_table_sum", 5 + 2 * _VALUES.size, "C, a table for each side")

    def loop_texts(self, core: str) -> tuple[str, ...]:
        rounding = () if self.is_short else (TWICE.text,)
        return (*rounding, family_text("scalar", self.loop.function))


def scalar_sum_call(call: KernelCall) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    kernel, numbers = call.kernel, scalars(call)
    if not isinstance(kernel, BroadcastAdd):
        return ""
    right = -numbers["output_shift"]
    if not SMALLEST_SHIFT <= right <= LARGEST_SHIFT:
        return f"the output's scale needs a right shift by {right}"
    operation = kernel.what
    short = _short_form(tuple(sorted(numbers.items())), kernel.subtracts)
    if short is not None:
        return elementwise_call(call, ScalarSum, operation, short)
    offset = (numbers["output_zero_point"] << right) + (1 << (right - 1))
    scaling = numbers["output_multiplier"], offset, right, numbers["low"], numbers["high"]
    tables = (np.roll(one, INT8_MIN) for one in _summands(numbers, kernel.subtracts))
    words = [*scaling, *(int(word) for table in tables for word in table)]
    return elementwise_call(call, partial(ScalarSum, is_short=False), operation, words)


def _summands(numbers: Mapping[str, int], subtracts: bool) -> tuple[_Wide, _Wide]:
    """What each value of both sides adds to the sum, from the least value on."""
    found = []
    for side, sign in (("left", 1), ("right", -1 if subtracts else 1)):
        zero, scale = (
            numbers[f"{side}_zero_point"],
            (numbers[f"{side}_multiplier"], numbers[f"{side}_shift"]),
        )
        raised = ((int(value) - zero) << HEADROOM_BITS["int8"] for value in _VALUES)
        found.append(np.array([sign * requantized(one, *scale) for one in raised], np.int64))
    return found[0], found[1]


# Strips of a layer ask for the same form.
@lru_cache(maxsize=256)
def _short_form(items: tuple[tuple[str, int], ...], subtracts: bool) -> list[int] | None:
    """M, N, C, S and the limits; None if no such form gives every output."""
    numbers = dict(items)
    low, high, zero = numbers["low"], numbers["high"], numbers["output_zero_point"]
    sides = _summands(numbers, subtracts)
    sums = (sides[0][:, None] + sides[1][None, :]).reshape(-1)
    scale = np.array([[numbers["output_multiplier"]]]), np.array([[-numbers["output_shift"]]])
    outputs = np.arange(low + 1, high + 1, dtype=np.int64)
    firsts = first_sums(*scale, outputs[None, :] - zero)[0]
    found = low + np.searchsorted(firsts, sums, side="right")
    ratio = numbers["output_multiplier"] * 2.0 ** (numbers["output_shift"] - 31)
    exact = [float(side[-1] - side[0]) / (_VALUES.size - 1) * ratio for side in sides]
    # What is shifted fits 32 bits; it may wrap before all is added.
    reach = float(np.abs(sums).max()) * ratio + abs(zero) + 1
    shift = 31 - math.frexp(reach)[1]
    middle = [round(one * 2.0**shift) for one in exact]
    starts, last = found << shift, found == high
    steps = sorted(
        product(range(-_REACH, _REACH + 1), repeat=2), key=lambda one: max(map(abs, one))
    )
    for left, right in ((middle[0] + one, middle[1] + other) for one, other in steps):
        value = (_VALUES[:, None] * left + _VALUES[None, :] * right).reshape(-1)
        bounds = starts - value
        least = int(bounds[found > low].max(initial=-(2**62)))
        most = int(bounds[~last].min(initial=2**62)) + (1 << shift) - 1
        constant = min(max(0, least), most)
        if least <= most and int(np.abs(value + constant).max()) < 2**31:
            return [left, right, constant, shift, low, high]
    return None
