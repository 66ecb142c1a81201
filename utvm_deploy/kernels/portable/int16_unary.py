"""Functions of one int16: ABS, LEAKY_RELU, NEG; EXP, GELU, LOG by lines between table entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import LeakyRelu
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import tirx
from utvm_deploy.kernels.contract.operands import element_count, ends_of, input_of, kernel_call
from utvm_deploy.kernels.contract.requantization import clamped, quantize_multiplier, requantize
from utvm_deploy.kernels.portable.real_functions import real_function
from utvm_deploy.kernels.portable.skeletons import Unary

_LEAST, _MOST = -32768, 32767
_INTERVALS = 512
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
    """The negative of the stored value, whatever the scales; that of -32768 is itself."""

    what: ClassVar[str] = "negate"

    @property
    def name(self) -> str:
        return f"negate_{self.count}_int16"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        return (0 - value.astype("int32")).astype("int16")


@dataclass(frozen=True)
class Interpolated(Unary):
    """A line between two of 513 table entries."""

    what: ClassVar[str] = "interpolated"
    why: ClassVar[str] = "integers only, between entries of a table"
    tables: ClassVar[Mapping[str, tuple[int, str]]] = {"table": (_INTERVALS + 1, "int16")}

    @property
    def name(self) -> str:
        return f"interpolated_{self.count}_int16"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        value, table = value.astype("int32"), given["table"]
        entry = (value >> 7) + _INTERVALS // 2
        base = table[entry].astype("int32")
        # The reference keeps slopes, and its results, in 16 bits.
        slope = (table[entry + 1].astype("int32") - base).astype("int16").astype("int32")
        return (base + ((slope * (value & 0x7F) + 64) >> 7)).astype("int16")


def lower_two_slopes(graph: Graph, operator: Operator) -> KernelCall:
    """ABS and LEAKY_RELU."""
    source, result = (np.float32(end.scale) for end in ends_of(graph, operator))
    ratio = alpha = float(source / result)
    negates = VALUE
    if isinstance(operator.attributes, LeakyRelu):
        alpha = float(source * np.float32(operator.attributes.alpha) / result)
        negates = MULTIPLE if alpha < 0 else NOTHING
    values = (*quantize_multiplier(ratio), *quantize_multiplier(abs(alpha)))
    parameters = dict(zip(TwoSlopes.parameters, values, strict=True))
    kernel = TwoSlopes(element_count(input_of(graph, operator, 0)[1]), negates=negates)
    return kernel_call(graph, operator, kernel, parameters, in_place=[0])


def lower_negated(graph: Graph, operator: Operator) -> KernelCall:
    """NEG."""
    kernel = Negated(element_count(input_of(graph, operator, 0)[1]))
    return kernel_call(graph, operator, kernel, in_place=[0])


def lower_interpolated(graph: Graph, operator: Operator) -> KernelCall:
    """EXP, GELU and LOG."""
    kernel = Interpolated(element_count(input_of(graph, operator, 0)[1]))
    table = interpolated_table(graph, operator)
    return kernel_call(graph, operator, kernel, {"table": table}, in_place=[0])


def interpolated_table(graph: Graph, operator: Operator) -> Array:
    """513 entries of int16, computed in float32 as the reference does.

    An entry is lowered by half of what the line to the next entry is too high in its middle.
    """
    source, result = (np.float32(end.scale) for end in ends_of(graph, operator))
    function = real_function(graph, operator)
    low, high = source * np.float32(_LEAST), source * np.float32(_MOST)
    step = (high - low) / np.float32(_INTERVALS)
    span = result * np.float32(_MOST) - result * np.float32(_LEAST)
    factor = np.float32(65536) / span
    two = np.float32(2)
    table = np.zeros(_INTERVALS + 1, np.int16)

    def limited(value: Any) -> int:
        return int(min(max(float(value), _LEAST), _MOST))

    for i in range(_INTERVALS):
        at = low + np.float32(i) * step
        value, middle = function(at), function(at + step / two)
        following = function(low + np.float32(i + 1) * step)
        entry = _rounded(value * factor)
        line = _rounded((following * factor + entry) / two)
        table[i] = limited(entry - _rounded((line - _rounded(middle * factor)) / two))
    table[_INTERVALS] = limited(_rounded(function(high) * factor))
    return table


def _rounded(value: Any) -> Any:
    """Half away from zero, in float32."""
    whole = np.trunc(value)
    up = np.abs(value - whole) >= np.float32(0.5)
    return whole + np.copysign(np.float32(1), value) if up else whole


INT16_LOWERINGS = {
    "ABS": lower_two_slopes,
    "EXP": lower_interpolated,
    "GELU": lower_interpolated,
    "LEAKY_RELU": lower_two_slopes,
    "LOG": lower_interpolated,
    "NEG": lower_negated,
}
