"""SOFTMAX of int16: straight lines between the entries of two tables, as in the reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.requantization import clamped, quantize_multiplier, requantize
from utvm_deploy.kernels.portable.int16_unary import INTERVALS, line_table
from utvm_deploy.kernels.portable.skeletons import (
    compute_per_output,
    initialize_apart,
    int32s,
    tables_of,
)

# The steps of an int16, and the range of the exponents in the table.
_STEPS = 65535
_EXPONENTS = 10.0


@dataclass(frozen=True)
class SoftmaxRows16:
    """SOFTMAX of each row of int16, with tables of exp(x) and 1 / (1 + x) in 1/2**15."""

    rows: int
    depth: int

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

        def per_row(name: str, of_row: Callable[[Any], Any]) -> Any:
            return te.compute((self.rows,), of_row, name=name)

        largest = per_row("largest", lambda r: te.max(source[r, i].astype("int32"), axis=i))

        def exponent(r: Any, k: Any) -> Any:
            difference = source[r, k].astype("int32") - largest[r]
            return _looked_up(exponentials, requantize(difference, multiplier, shift) + 32767)

        exponential = te.compute(shape, exponent, name="exponential")
        total = per_row("total", lambda r: te.sum(exponential[r, j], axis=j))
        zeros = per_row(
            "zeros", lambda r: tirx.call_pure_extern("int32", "utvm_leading_zeros", total[r])
        )

        def inverse(r: Any) -> Any:
            raised = total[r] << (zeros[r] - 1)
            rounded = ((raised >> 13) + 1) >> 1
            return _looked_up(inverses, rounded - ((1 << 15) + (1 << 16)))

        reciprocal = per_row("reciprocal", inverse)

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


def _looked_up(table: Any, value: Any) -> Any:
    """TIR: between the entries of a table over int16; ``value`` is saturated."""
    limited = tirx.call_pure_extern("int32", "utvm_clamp", value, -32768, 32767)
    place = tirx.Var("place", "int32")
    entry = 256 + (place >> 7)
    base = table[entry].astype("int32")
    slope = table[entry + 1].astype("int32") - base
    return tirx.Let(place, limited, base + ((slope * (place & 0x7F) + 64) >> 7))


INT16_LOWERINGS = {"SOFTMAX": lower_softmax_int16}
