"""Operators that map one byte to one byte: a lookup in a 256-byte table that is computed here.

The reference computes some of them with integers (requantizing, HARD_SWISH) and some in float32
(``real_functions.py``). The table holds the reference's bytes, so the device computes neither.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from utvm_deploy.graph.attributes import IntegerFunction, LeakyRelu, Lookup, Relu
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Buffer, buffers
from utvm_deploy.kernels.contract.operands import element_count
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    INT8_MIN,
    quantize_multiplier,
    requantized,
    rounded_shift,
)
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.portable.integers.plain_integers import lower_plain_function
from utvm_deploy.kernels.portable.integers.real_functions import REAL_FUNCTIONS, Function

_BITS = 8


def lower_lookup(op: Operation) -> KernelCall:
    """An operator on bytes: the lookup in the table of its values; others on plain integers."""
    if isinstance(op.operator.attributes, IntegerFunction):
        return lower_plain_function(op)
    return table_call(op, 0, FUNCTIONS[op.kind](op))


def lower_tables(op: Operation) -> KernelCall:
    """LOOKUP: a given table of bytes, or one of any type for each channel."""
    tables, result = op.constant(1), op.result
    if len(tables) == 1 and result.element.bits == _BITS:
        return _lookup_call(op, 0, tables[0])
    axis, shape = op.attributes(Lookup).axis, result.shape
    numbers = (prod(shape[:axis]), len(tables), prod(shape[axis + 1 :]))
    if len(tables) == 1:
        numbers = (1, 1, prod(shape))
    c_type = Buffer("", result.dtype).ctype
    routine = shared_text("utvm_lookup_channels").replace("NUMBER", c_type)
    name = f"utvm_lookup_{result.dtype}"
    kernel = CRoutine(
        name,
        buffers(input=op.source.dtype, tables=result.dtype, output=result.dtype),
        numbers,
        name="_".join([name.removeprefix("utvm_"), op.source.dtype, *map(str, numbers)]),
        why="one table lookup per element, a table for each channel",
        c_texts=(routine.replace("NAME", name),),
    )
    in_place = [0] if result.element.bits == _BITS else []
    return op.call(kernel, {"tables": tables}, in_place=in_place)


def table_call(op: Operation, index: int, function: Function) -> KernelCall:
    """The lookup of each element of the input number ``index``: ``output[i] = table[input[i]]``."""
    return _lookup_call(op, index, lookup_table(function, op.input(index).dtype, op.result.dtype))


def _lookup_call(op: Operation, index: int, table: Array) -> KernelCall:
    source, result, count = op.input(index).dtype, op.result.dtype, element_count(op.result)
    types = "" if source == result == "int8" else f"_{source}_{result}"
    kernel = CRoutine(
        "utvm_lookup",
        buffers(input=source, table=result, output=result),
        (count,),
        name=f"lookup_{count}{types}",
        why="one table lookup per element, by words",
        c_texts=(shared_text("utvm_lookup"),),
    )
    return op.call(kernel, {"table": table}, inputs=[index], in_place=[index])


def lookup_table(function: Function, source: str = "int8", result: str = "int8") -> Array:
    """The saturated values of ``function`` for all 256 bytes, in the order of unsigned bytes."""
    low, high = element_type(result).limits
    values = [function(int(q)) for q in np.arange(256).astype(np.uint8).view(source)]
    return np.array([min(max(v, low), high) for v in values], dtype=result)


def _relu(op: Operation) -> Function:
    """RELU, RELU6, RELU_0_TO_1 and RELU_N1_TO_1: requantize, then clamp."""
    low, high = op.attributes(Relu).clamp
    scaled = _rescaled(op, _float32_ratio(op))
    return lambda q: min(max(scaled(q), low), high)


def _requantize(op: Operation) -> Function:
    """QUANTIZE of a byte to a byte."""
    source, result = op.ends
    return _rescaled(op, source.scale / result.scale)


def _leaky_relu(op: Operation) -> Function:
    source, result = op.ends
    slope = np.float32(source.scale) * np.float32(op.attributes(LeakyRelu).alpha)
    alpha = float(slope / np.float32(result.scale))
    positive = _rescaled(op, _float32_ratio(op))
    magnitude = _rescaled(op, abs(alpha))

    def function(q: int) -> int:
        if q >= source.zero_point:
            return positive(q)
        scaled = magnitude(q) - result.zero_point
        return result.zero_point + (scaled if alpha >= 0 else -scaled)

    return function


def _abs(op: Operation) -> Function:
    source, result = op.ends
    if source.scale == result.scale:
        return lambda q: abs(q - source.zero_point) + result.zero_point
    ratio = quantize_multiplier(_float32_ratio(op))
    return lambda q: requantized(abs(q - source.zero_point), *ratio) + result.zero_point


def _neg(op: Operation) -> Function:
    """The negative of the stored byte, for all zero points; that of -128 is itself."""
    return lambda q: -q if q != INT8_MIN else q


def _hard_swish(op: Operation) -> Function:
    """x * relu6(x + 3) / 6 in the reference's fixed point of 16 bits."""
    source, result = op.ends
    high_resolution = np.float32(1 / 128) * np.float32(source.scale)
    ratio = float(high_resolution / np.float32(result.scale))
    output_multiplier, output_shift = _int16_multiplier(ratio)
    share_scale = np.float32(3.0) / np.float32(32768.0)
    share_multiplier, share_shift = _int16_multiplier(float(high_resolution / share_scale))

    def function(q: int) -> int:
        value = (q - source.zero_point) << 7
        scaled = _high_product_int16(value, output_multiplier)
        share = value
        if share_shift > 0:
            share = _saturated_int16(share << (share_shift - 1))
        share = _high_product_int16(share, share_multiplier)
        if share_shift > 0:
            share = _saturated_int16(share << 1)
        if share_shift < 0:
            share = _rounded_shift_int16(share, -share_shift)
        # The share goes from [-1, 1) to [0, 1).
        share = (share + (1 << 15)) >> 1
        product = share * scaled
        truncated = abs(product) >> 15
        truncated = truncated if product >= 0 else -truncated
        return _rounded_shift_int16(truncated, -output_shift) + result.zero_point

    return function


def _rounded_shift_int16(value: int, bits: int) -> int:
    """The reference's shift of an int16, which rounds up if it is by 16 bits or more."""
    return rounded_shift(value, bits) if bits < 16 else (value >> bits) + (value >= 0)


#: Kind -> the function of a quantized value that the operator is.
FUNCTIONS: dict[str, Callable[[Operation], Function]] = {
    "ABS": _abs,
    "HARD_SWISH": _hard_swish,
    "LEAKY_RELU": _leaky_relu,
    "NEG": _neg,
    "QUANTIZE": _requantize,
    "RELU": _relu,
    "RELU6": _relu,
    "RELU_0_TO_1": _relu,
    "RELU_N1_TO_1": _relu,
    **REAL_FUNCTIONS,
}


def _float32_ratio(op: Operation) -> float:
    """The quotient of the scales, for operators whose reference divides in float32."""
    source, result = op.ends
    return float(np.float32(source.scale) / np.float32(result.scale))


def _rescaled(op: Operation, ratio: float) -> Function:
    source, result = op.ends
    multiplier, shift = quantize_multiplier(ratio)
    return lambda q: requantized(q - source.zero_point, multiplier, shift) + result.zero_point


def _int16_multiplier(scale: float) -> tuple[int, int]:
    """Multiplier and shift of a scale in 16 bits, rounded from those of 32."""
    multiplier, shift = quantize_multiplier(scale)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), shift


def _high_product_int16(left: int, right: int) -> int:
    """left * right / 2**15, half up; right is below 2**15, so nothing saturates."""
    return (left * right + (1 << 14)) >> 15


def _saturated_int16(value: int) -> int:
    return min(max(value, -(1 << 15)), (1 << 15) - 1)


#: QUANTIZE has other types, too: ``conversions.py`` lowers it.
LOWERINGS = {
    **{kind: lower_lookup for kind in FUNCTIONS if kind != "QUANTIZE"},
    "LOOKUP": lower_tables,
}
