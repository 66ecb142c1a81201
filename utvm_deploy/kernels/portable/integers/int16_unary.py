"""Functions of one int16: ABS, LEAKY_RELU, NEG, and the functions that need a table.

EXP, GELU, LOG and RSQRT are straight lines between the entries of a table, as in
the reference. The tables are computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import LeakyRelu
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import element_count
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import clamped, quantize_multiplier, requantize
from utvm_deploy.kernels.portable.integers.real_functions import real_function
from utvm_deploy.kernels.portable.schedules.skeletons import Unary

_LEAST, _MOST = -32768, 32767
#: Intervals of the tables of EXP, GELU, LOG, RSQRT and SOFTMAX, which have one more entry.
INTERVALS = 512
NOTHING, VALUE, MULTIPLE = "nothing", "value", "multiple"


@dataclass(frozen=True)
class TwoSlopes(Unary):
    """One factor for values of at least 0, another factor for negative ones."""

    # What is negated of a negative value: nothing, the value itself, or its multiple.
    negates: str = NOTHING

    what: ClassVar[str] = "two_slopes"
    parameters: ClassVar[tuple[str, ...]] = (
        *("multiplier", "shift"),
        *("negative_multiplier", "negative_shift"),
    )

    @property
    def name(self) -> str:
        return f"two_slopes_{self.negates}_{self.count}_int16"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        multiplier, shift, negative_multiplier, negative_shift = given.values()
        value = value.astype("int32")
        below = 0 - value if self.negates == VALUE else value
        below = requantize(below, negative_multiplier, negative_shift)
        scaled = tirx.if_then_else(
            value >= 0,
            requantize(value, multiplier, shift),
            0 - below if self.negates == MULTIPLE else below,
        )
        return clamped(scaled, _LEAST, _MOST, "int16")


@dataclass(frozen=True)
class Negated(Unary):
    """The negative of the stored value, for all scales; that of -32768 is itself."""

    what: ClassVar[str] = "negate"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        return (0 - value.astype("int32")).astype("int16")


@dataclass(frozen=True)
class Interpolated(Unary):
    """A line between two of 513 table entries."""

    what: ClassVar[str] = "interpolated"
    why: ClassVar[str] = "integers only, between entries of a table"
    tables: ClassVar[Mapping[str, tuple[int, str]]] = {"table": (INTERVALS + 1, "int16")}

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        value, table = value.astype("int32"), given["table"]
        entry = (value >> 7) + INTERVALS // 2
        base = table[entry].astype("int32")
        # The reference keeps slopes, and its results, in 16 bits.
        slope = (table[entry + 1].astype("int32") - base).astype("int16").astype("int32")
        return (base + ((slope * (value & 0x7F) + 64) >> 7)).astype("int16")


def lower_two_slopes(op: Operation) -> KernelCall:
    """ABS and LEAKY_RELU."""
    source, result = (np.float32(end.scale) for end in op.ends)
    ratio = alpha = float(source / result)
    negates = VALUE
    if op.kind == "LEAKY_RELU":
        alpha = float(source * np.float32(op.attributes(LeakyRelu).alpha) / result)
        negates = MULTIPLE if alpha < 0 else NOTHING
    values = (*quantize_multiplier(ratio), *quantize_multiplier(abs(alpha)))
    parameters = dict(zip(TwoSlopes.parameters, values, strict=True))
    kernel = TwoSlopes(element_count(op.source), negates=negates)
    return op.call(kernel, parameters, in_place=[0])


def lower_negated(op: Operation) -> KernelCall:
    """NEG."""
    kernel = Negated(element_count(op.source))
    return op.call(kernel, in_place=[0])


def lower_interpolated(op: Operation) -> KernelCall:
    """EXP, GELU, LOG and RSQRT."""
    kernel = Interpolated(element_count(op.source))
    source, result = (np.float32(end.scale) for end in op.ends)
    least, most = np.float32(_LEAST), np.float32(_MOST)
    ends, span = (source * least, source * most), result * most - result * least
    table = line_table(real_function(op), *ends, span)
    return op.call(kernel, {"table": table}, in_place=[0])


def line_table(
    function: Callable[[Any], Any], low: Any, high: Any, span: Any, real: Any = np.float32
) -> Array:
    """513 entries of int16 for ``function`` from ``low`` to ``high``, as the reference makes them.

    An entry is lowered by half of the error of the line to the next entry, in the line's middle.
    ``span`` is the range of the output in all steps of int16; ``real`` is the type to compute in.
    """
    low, high = real(low), real(high)
    step, factor = (high - low) / real(INTERVALS), real(65536) / real(span)
    two = real(2)
    table = np.zeros(INTERVALS + 1, np.int16)

    def limited(value: Any) -> int:
        return int(min(max(float(value), _LEAST), _MOST))

    for i in range(INTERVALS):
        at = low + real(i) * step
        entry, middle = _rounded(function(at) * factor), function(at + step / two)
        following = function(low + real(i + 1) * step)
        line = _rounded((following * factor + entry) / two)
        table[i] = limited(entry - _rounded((line - _rounded(middle * factor)) / two))
    table[INTERVALS] = limited(_rounded(function(high) * factor))
    return table


def _rounded(value: Any) -> Any:
    """Half away from zero, in the type of ``value``."""
    whole = np.trunc(value)
    up = np.abs(value - whole) >= 0.5
    return whole + np.copysign(type(whole)(1), value) if up else whole


INT16_LOWERINGS = {
    "ABS": lower_two_slopes,
    "EXP": lower_interpolated,
    "GELU": lower_interpolated,
    "LEAKY_RELU": lower_two_slopes,
    "LOG": lower_interpolated,
    "NEG": lower_negated,
    "RSQRT": lower_interpolated,
}
