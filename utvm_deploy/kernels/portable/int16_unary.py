"""Functions of one int16: ABS, LEAKY_RELU, NEG; EXP, GELU, LOG by lines between table entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import LeakyRelu
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import (
    element_count,
    ends_of,
    input_of,
    operand_of,
    output_of,
)
from utvm_deploy.kernels.contract.requantization import clamped, quantize_multiplier, requantize
from utvm_deploy.kernels.portable.real_functions import real_function

_LEAST, _MOST = -32768, 32767
_INTERVALS = 512
NOTHING, VALUE, MULTIPLE = "nothing", "value", "multiple"


@dataclass(frozen=True)
class TwoSlopes:
    """One factor for what is not negative, another one for the rest."""

    count: int
    # What is negated of a negative value: nothing, the value itself, or its multiple.
    negates: str

    @property
    def name(self) -> str:
        return f"two_slopes_{self.negates}_{self.count}_int16"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "int16", "input")
        names = ("multiplier", "shift", "negative_multiplier", "negative_shift")
        scalars = [te.var(name, "int32") for name in names]
        multiplier, shift, negative_multiplier, negative_shift = scalars

        def element(i: Any) -> Any:
            value = source[i].astype("int32")
            below = 0 - value if self.negates == VALUE else value
            below = requantize(below, negative_multiplier, negative_shift)
            scaled = tirx.if_then_else(
                value >= 0,
                requantize(value, multiplier, shift),
                0 - below if self.negates == MULTIPLE else below,
            )
            return clamped(scaled, _LEAST, _MOST, "int16")

        output = te.compute((self.count,), element, name="two_slopes")
        return te.create_prim_func([source, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"


@dataclass(frozen=True)
class Negated:
    """The negative, whatever the scales; that of -32768 is itself."""

    count: int

    @property
    def name(self) -> str:
        return f"negate_{self.count}_int16"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "int16", "input")
        output = te.compute(
            (self.count,), lambda i: (0 - source[i].astype("int32")).astype("int16"), name="negate"
        )
        return te.create_prim_func([source, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "generic C, one element at a time"


@dataclass(frozen=True)
class Interpolated:
    """A line between two of 513 table entries."""

    count: int

    @property
    def name(self) -> str:
        return f"interpolated_{self.count}_int16"

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), "int16", "input")
        table = te.placeholder((_INTERVALS + 1,), "int16", "table")

        def element(i: Any) -> Any:
            value = source[i].astype("int32")
            entry = (value >> 7) + _INTERVALS // 2
            base = table[entry].astype("int32")
            # The reference keeps slopes, and what it returns, in 16 bits.
            slope = (table[entry + 1].astype("int32") - base).astype("int16").astype("int32")
            return (base + ((slope * (value & 0x7F) + 64) >> 7)).astype("int16")

        output = te.compute((self.count,), element, name="interpolated")
        return te.create_prim_func([source, table, output])

    def schedule(self, sch: Any, core: str) -> str:
        return "integers only, between entries of a table"


def lower_two_slopes(graph: Graph, operator: Operator) -> KernelCall:
    """ABS and LEAKY_RELU."""
    source, result = (np.float32(end.scale) for end in ends_of(graph, operator))
    ratio = alpha = float(source / result)
    negates = VALUE
    if isinstance(operator.attributes, LeakyRelu):
        alpha = float(source * np.float32(operator.attributes.alpha) / result)
        negates = MULTIPLE if alpha < 0 else NOTHING
    pairs = (*quantize_multiplier(ratio), *quantize_multiplier(abs(alpha)))
    names = ("multiplier", "shift", "negative_multiplier", "negative_shift")
    scalars = [ScalarArgument(name, value) for name, value in zip(names, pairs, strict=True)]
    count = element_count(input_of(graph, operator, 0)[1])
    return _call(graph, operator, TwoSlopes(count, negates), scalars)


def lower_negated(graph: Graph, operator: Operator) -> KernelCall:
    """NEG."""
    return _call(graph, operator, Negated(element_count(input_of(graph, operator, 0)[1])), [])


def lower_interpolated(graph: Graph, operator: Operator) -> KernelCall:
    """EXP, GELU and LOG."""
    table = ConstantArgument("table", interpolated_table(graph, operator))
    count = element_count(input_of(graph, operator, 0)[1])
    return _call(graph, operator, Interpolated(count), [table])


def _call(
    graph: Graph,
    operator: Operator,
    kernel: TwoSlopes | Negated | Interpolated,
    arguments: Sequence[Argument],
) -> KernelCall:
    position, source = input_of(graph, operator, 0)
    output, _ = output_of(graph, operator)
    return KernelCall(
        kernel,
        (operand_of(position, source), *arguments, TensorArgument(output)),
        in_place=((output, position),) if source.data is None else (),
    )


def interpolated_table(graph: Graph, operator: Operator) -> Array:
    """Entries, lowered by half of what the lines between them are too high, in float32."""
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
