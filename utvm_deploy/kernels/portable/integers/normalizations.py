"""Operators that normalize each row of the last dimension: SOFTMAX of int16, L2_NORMALIZATION."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.requantization import (
    INT8_MAX,
    INT8_MIN,
    clamped,
    quantize_multiplier,
    requantize,
)
from utvm_deploy.kernels.portable.integers.int16_unary import INTERVALS, line_table
from utvm_deploy.kernels.portable.schedules.skeletons import (
    compute_per_output,
    initialize_apart,
    int32s,
    tables_of,
)

# The steps of an int16, and the range of the exponents in the table.
_STEPS = 65535
_EXPONENTS = 10.0
# The output's scale of L2_NORMALIZATION is 1/128.
_OUTPUT_BITS = 7


@dataclass(frozen=True)
class _Rows:
    """A base of kernels that have rows of ``depth`` elements."""

    rows: int
    depth: int

    def per_row(self, name: str, of_row: Callable[[Any], Any]) -> Any:
        """The stage that computes one value for each row."""
        return te.compute((self.rows,), of_row, name=name)


@dataclass(frozen=True)
class SoftmaxRows16(_Rows):
    """SOFTMAX of int16: straight lines between the entries of two tables, as in the reference.

    The tables are exp(x) and 1 / (1 + x) in 1/2**15.
    """

    @property
    def name(self) -> str:
        return f"softmax_{self.rows}x{self.depth}_int16"

    def prim_func(self) -> Any:
        shape = (self.rows, self.depth)
        source = te.placeholder(shape, "int16", "input")
        tables = tables_of(INTERVALS + 1, "exponentials", "inverses", dtype="int16")
        scalars = list(int32s(("multiplier", "shift")).values())
        (exponentials, inverses), (multiplier, shift) = tables, scalars
        i, j = (te.reduce_axis((0, self.depth), name) for name in "ij")
        largest = self.per_row("largest", lambda r: te.max(source[r, i].astype("int32"), axis=i))

        def exponent(r: Any, k: Any) -> Any:
            difference = source[r, k].astype("int32") - largest[r]
            return _looked_up(exponentials, requantize(difference, multiplier, shift) + 32767)

        exponential = te.compute(shape, exponent, name="exponential")
        total = self.per_row("total", lambda r: te.sum(exponential[r, j], axis=j))
        zeros = self.per_row(
            "zeros", lambda r: tirx.call_pure_extern("int32", "utvm_leading_zeros", total[r])
        )

        def inverse(r: Any) -> Any:
            raised = total[r] << (zeros[r] - 1)
            rounded = ((raised >> 13) + 1) >> 1
            return _looked_up(inverses, rounded - ((1 << 15) + (1 << 16)))

        reciprocal = self.per_row("reciprocal", inverse)

        def share(r: Any, k: Any) -> Any:
            bits = 31 - zeros[r]
            half = tirx.const(1, "int32") << (bits - 1)
            return clamped((exponential[r, k] * reciprocal[r] + half) >> bits, 0, 32767, "int16")

        output = te.compute(shape, share, name="softmax")
        return te.create_prim_func([source, *tables, *scalars, output])

    def schedule(self, sch: Any, core: str) -> str:
        row, _ = sch.get_loops(sch.get_sblock("softmax"))
        compute_per_output(sch, row, "reciprocal", "zeros", "total", "exponential", "largest")
        initialize_apart(sch, "total", "largest")
        return "integers only, between entries of tables"


@dataclass(frozen=True)
class L2NormalizedRows(_Rows):
    """L2_NORMALIZATION of int8: each row is divided by the root of the sum of its squares."""

    @property
    def name(self) -> str:
        return f"l2_normalization_{self.rows}x{self.depth}"

    def prim_func(self) -> Any:
        shape = (self.rows, self.depth)
        source = te.placeholder(shape, "int8", "input")
        zero_point = te.var("zero_point", "int32")
        k = te.reduce_axis((0, self.depth), "k")

        def value(r: Any, i: Any) -> Any:
            return source[r, i].astype("int32") - zero_point

        squares = self.per_row("squares", lambda r: te.sum(value(r, k) * value(r, k), axis=k))

        def of_squares(name: str) -> Any:
            return self.per_row(name, lambda r: tirx.call_pure_extern("int32", name, squares[r]))

        inverse, shift = of_squares("utvm_inverse_root"), of_squares("utvm_inverse_root_shift")
        output = te.compute(
            shape,
            lambda r, i: clamped(
                requantize(value(r, i), inverse[r], shift[r] + _OUTPUT_BITS), INT8_MIN, INT8_MAX
            ),
            name="l2_normalization",
        )
        return te.create_prim_func([source, zero_point, output])

    def schedule(self, sch: Any, core: str) -> str:
        sch.annotate(sch.get_sblock("root"), "pragma_import_c", shared_text("utvm_inverse_root"))
        row, _ = sch.get_loops(sch.get_sblock("l2_normalization"))
        compute_per_output(sch, row, "utvm_inverse_root_shift", "utvm_inverse_root", "squares")
        initialize_apart(sch, "squares")
        return "integers only, one row at a time"


def lower_softmax_int16(op: Operation) -> KernelCall:
    """SOFTMAX of int16 along the last dimension."""
    source, beta = op.source, op.attributes(Softmax).beta
    depth = source.shape[-1]
    # The reference multiplies the scale by beta in float32.
    scale = float(np.float32(quantization_of(source).scale) * np.float32(beta))
    multiplier, shift = quantize_multiplier(scale / (_EXPONENTS / _STEPS))
    # An output of 2.0 spans the whole range of int16.
    span = 2.0 / _STEPS * _STEPS
    parameters: Parameters = {
        "exponentials": line_table(math.exp, -_EXPONENTS, 0.0, span, np.float64),
        "inverses": line_table(lambda x: 1 / (1 + x), 0.0, 1.0, span, np.float64),
        "multiplier": multiplier,
        "shift": shift,
    }
    kernel = SoftmaxRows16(element_count(source) // depth, depth)
    return op.call(kernel, parameters, in_place=[0])


def lower_l2_normalization(op: Operation) -> KernelCall:
    """L2_NORMALIZATION along the last dimension."""
    source = op.source
    depth = source.shape[-1]
    kernel = L2NormalizedRows(element_count(source) // depth, depth)
    zero_point = quantization_of(source).zero_point
    # A row is summed up before its first element is written.
    return op.call(kernel, {"zero_point": zero_point}, in_place=[0])


def _looked_up(table: Any, value: Any) -> Any:
    """TIR: between the entries of a table over int16; ``value`` is saturated."""
    limited = tirx.call_pure_extern("int32", "utvm_clamp", value, -32768, 32767)
    place = tirx.Var("place", "int32")
    entry = 256 + (place >> 7)
    base = table[entry].astype("int32")
    slope = table[entry + 1].astype("int32") - base
    return tirx.Let(place, limited, base + ((slope * (place & 0x7F) + 64) >> 7))


LOWERINGS = {"L2_NORMALIZATION": lower_l2_normalization}
INT16_LOWERINGS = {"SOFTMAX": lower_softmax_int16}
