"""LOGISTIC, TANH and SOFTMAX of int16: straight lines between the entries of small tables.

The reference interpolates too; the tables are made here, with its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import (
    Parameters,
    element_count,
    input_of,
    kernel_call,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import clamped, quantize_multiplier, requantize
from utvm_deploy.kernels.portable.skeletons import (
    Unary,
    compute_per_output,
    initialize_apart,
    int32s,
    tables_of,
)

# The sigmoid's table has a value for every 1/24, as a fraction of 2**16.
_STEPS_OF_ONE = 24
_SIGMOID_ENTRIES = 256
# Inputs are scaled to 3 * 4096 of one, which is 2**9 for each of those steps.
_INPUT_OF_ONE = 3 * 4096
_INTEGER_BITS = 3
# SOFTMAX's tables: 512 intervals and the end of the last one, over a range of int16.
_INTERVALS = 512
_RANGE = 65535
_EXP_RANGE = 10.0


@dataclass(frozen=True)
class Sigmoid(Unary):
    """LOGISTIC or TANH of int16 by one table: tanh(x) = 2 sigmoid(2 x) - 1."""

    is_tanh: bool = False

    what: ClassVar[str] = "sigmoid"
    why: ClassVar[str] = "integers only, between entries of a table"
    tables: ClassVar[Mapping[str, tuple[int, str]]] = {"table": (_SIGMOID_ENTRIES, "int32")}
    parameters: ClassVar[tuple[str, ...]] = ("multiplier", "half", "shift")

    @property
    def name(self) -> str:
        return f"{'tanh' if self.is_tanh else 'logistic'}_{self.count}_int16"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        table, multiplier, half, shift = given.values()
        # tanh looks at twice its argument.
        bits = 8 if self.is_tanh else 9
        saturated = (0xFFFF << 8) if self.is_tanh else (0x7FFF << 10)
        value = (value.astype("int32") * multiplier + half) >> shift
        magnitude = te.if_then_else(value >= 0, value, 0 - value)
        entry = magnitude >> bits
        below = te.min(entry, _SIGMOID_ENTRIES - 2)
        first = table[below]
        between = (magnitude & ((1 << bits) - 1)) * (table[below + 1] - first)
        line = (first << bits) + between
        share = te.if_then_else(entry >= _SIGMOID_ENTRIES - 1, saturated, line)
        if self.is_tanh:
            positive = share - (1 << 23) + (1 << 7)
            negative = (1 << 23) + (1 << 7) - 1 - share
            result = te.if_then_else(value >= 0, positive, negative) >> 8
        else:
            positive, negative = share + (1 << 9), (1 << 25) + (1 << 9) - 1 - share
            result = te.if_then_else(value >= 0, positive, negative) >> 10
        return result.astype("int16")


@dataclass(frozen=True)
class SoftmaxRows16:
    """SOFTMAX of each row of int16, with tables of exp(x) and 1 / (1 + x)."""

    rows: int
    depth: int

    @property
    def name(self) -> str:
        return f"softmax_{self.rows}x{self.depth}_int16"

    def prim_func(self) -> Any:
        shape = (self.rows, self.depth)
        source = te.placeholder(shape, "int16", "input")
        exponentials, inverses = tables_of(
            _INTERVALS + 1, "exponentials", "inverses", dtype="int16"
        )
        multiplier, shift = scalars = list(int32s(("multiplier", "shift")).values())
        i = te.reduce_axis((0, self.depth), "i")
        largest = te.compute(
            (self.rows,), lambda r: te.max(source[r, i].astype("int32"), axis=i), name="largest"
        )
        exponential = te.compute(
            shape,
            lambda r, k: _looked_up(
                exponentials,
                requantize(source[r, k].astype("int32") - largest[r], multiplier, shift) + 32767,
            ),
            name="exponential",
        )
        j = te.reduce_axis((0, self.depth), "j")
        total = te.compute((self.rows,), lambda r: te.sum(exponential[r, j], axis=j), name="total")
        zeros = te.compute(
            (self.rows,),
            lambda r: tirx.call_pure_extern("int32", "utvm_leading_zeros", total[r]),
            name="zeros",
        )

        def inverse(r: Any) -> Any:
            raised = total[r] << (zeros[r] - 1)
            rounded = ((raised >> 13) + 1) >> 1
            return _looked_up(inverses, rounded - ((1 << 15) + (1 << 16)))

        reciprocal = te.compute((self.rows,), inverse, name="reciprocal")

        def share(r: Any, k: Any) -> Any:
            bits = 31 - zeros[r]
            half = tirx.const(1, "int32") << (bits - 1)
            return clamped((exponential[r, k] * reciprocal[r] + half) >> bits, 0, 32767, "int16")

        output = te.compute(shape, share, name="softmax")
        return te.create_prim_func([source, exponentials, inverses, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        row, _ = sch.get_loops(sch.get_sblock("softmax"))
        compute_per_output(sch, row, "reciprocal", "zeros", "total", "exponential", "largest")
        initialize_apart(sch, "total", "largest")
        return "integers only, between entries of tables"


def lower_sigmoid(graph: Graph, operator: Operator) -> KernelCall:
    """LOGISTIC and TANH of int16."""
    source, result = input_of(graph, operator, 0)[1], output_of(graph, operator)[1]
    is_tanh = operator.kind == "TANH"
    multiplier, shift = _input_scaling(quantization_of(source).scale, is_tanh)
    half = 1 << shift >> 1
    parameters: Parameters = {
        "table": sigmoid_table(),
        "multiplier": multiplier,
        "half": half,
        "shift": shift,
    }
    kernel = Sigmoid(element_count(result), is_tanh=is_tanh)
    return kernel_call(graph, operator, kernel, parameters, in_place=[0])


def lower_softmax_int16(graph: Graph, operator: Operator) -> KernelCall:
    """SOFTMAX of int16 along the last dimension."""
    assert isinstance(operator.attributes, Softmax)
    _, source = input_of(graph, operator, 0)
    depth = source.shape[-1]
    # The reference multiplies the scale by beta in float32.
    scale = float(np.float32(quantization_of(source).scale) * np.float32(operator.attributes.beta))
    multiplier, shift = quantize_multiplier(scale / (_EXP_RANGE / _RANGE))
    parameters: Parameters = {
        "exponentials": interpolated(math.exp, -_EXP_RANGE, 0.0),
        "inverses": interpolated(lambda x: 1 / (1 + x), 0.0, 1.0),
        "multiplier": multiplier,
        "shift": shift,
    }
    kernel = SoftmaxRows16(element_count(source) // depth, depth)
    return kernel_call(graph, operator, kernel, parameters, in_place=[0])


def sigmoid_table() -> Array:
    """sigmoid(i / 24) in 1/2**16, lowered by half of what the line to the next is too high."""

    def sigmoid(steps: float) -> float:
        return 65536 / (1 + math.exp(-steps / _STEPS_OF_ONE))

    table = np.zeros(_SIGMOID_ENTRIES, np.int32)
    for i in range(_SIGMOID_ENTRIES):
        excess = (sigmoid(i) + sigmoid(i + 1)) / 2 - sigmoid(i + 0.5)
        table[i] = math.floor(sigmoid(i) - excess / 2 + 0.5)
    table[-1] = 65535
    return table


def interpolated(function: Callable[[float], float], low: float, high: float) -> Array:
    """A function over a range, in 1/2**15: 512 intervals, moved as the reference moves them."""
    step = (high - low) / _INTERVALS
    # An output of 2.0 spans the whole range of int16.
    factor = 65536 / (2.0 / _RANGE * _RANGE)
    table = np.zeros(_INTERVALS + 1, np.int64)
    for i in range(_INTERVALS):
        value = function(low + i * step) * factor
        middle = _rounded(function(low + i * step + step / 2) * factor)
        following = function(low + (i + 1) * step) * factor
        line = _rounded((following + _rounded(value)) / 2)
        table[i] = _rounded(value) - _rounded((line - middle) / 2)
    table[-1] = _rounded(function(high) * factor)
    limited: Array = np.clip(table, -32768, 32767).astype(np.int16)
    return limited


def _input_scaling(scale: float, is_tanh: bool) -> tuple[int, int]:
    """What brings an input to 1/12288, as multiplier and right shift."""
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5:
        left = 15 - _INTEGER_BITS + exponent - 1
        if left == 0 or (is_tanh and left == 1):
            return 3 << left, 0
    multiplier, shift = scale * _INPUT_OF_ONE, 0
    while multiplier <= 32767.0 / 2 and shift <= 30:
        shift += 1
        multiplier *= 2
    return int(multiplier), shift


def _looked_up(table: Any, value: Any) -> Any:
    """TIR: between the entries of a table over int16; ``value`` is saturated."""
    limited = tirx.call_pure_extern("int32", "utvm_clamp", value, -32768, 32767)
    place = tirx.Var("place", "int32")
    entry = 256 + (place >> 7)
    base = table[entry].astype("int32")
    slope = table[entry + 1].astype("int32") - base
    return tirx.Let(place, limited, base + ((slope * (place & 0x7F) + 64) >> 7))


def _rounded(value: float) -> int:
    """Half away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


INT16_LOWERINGS = {
    "LOGISTIC": lower_sigmoid,
    "SOFTMAX": lower_softmax_int16,
    "TANH": lower_sigmoid,
}
