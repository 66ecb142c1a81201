"""Operators that normalize each row of the last dimension: SOFTMAX of int16, L2_NORMALIZATION."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
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
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.portable.integers.int16_unary import line_table
from utvm_deploy.kernels.portable.schedules.skeletons import (
    compute_per_output,
    initialize_apart,
)

# The steps of an int16, and the range of the exponents in the table.
_STEPS = 65535
_EXPONENTS = 10.0
#: Differences that are shifted farther are nothing; doubled, those of smaller shifts fit 32 bits.
_LEAST_SHIFT, _LARGEST_DOUBLED = -30, 14
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
    if shift < _LEAST_SHIFT:  # no difference counts
        multiplier, shift = 0, 0
    # An output of 2.0 spans the whole range of int16.
    span = 2.0 / _STEPS * _STEPS
    parameters: Parameters = {
        "exponentials": line_table(math.exp, -_EXPONENTS, 0.0, span, np.float64),
        "inverses": line_table(lambda x: 1 / (1 + x), 0.0, 1.0, span, np.float64),
        "multiplier": multiplier,
        "shift": shift,
    }
    rows = element_count(source) // depth
    function, is_long = "utvm_softmax_int16", shift > _LARGEST_DOUBLED
    routine = replaced(shared_text(function), ("IS_LONG", str(int(is_long)), 1))
    if is_long:  # a model may have both
        function = f"{function}_long"
        routine = replaced(routine, ("_int16(", "_int16_long(", routine.count("_int16(")))
    kernel = CRoutine(
        function,
        parameters_of(op, parameters),
        (rows, depth),
        name=function.replace("utvm_softmax", f"softmax_{rows}x{depth}"),
        why="generic C, integers only, between entries of tables",
        c_texts=(routine,),
    )
    return op.call(kernel, parameters, in_place=[0])


def lower_l2_normalization(op: Operation) -> KernelCall:
    """L2_NORMALIZATION along the last dimension."""
    source = op.source
    depth = source.shape[-1]
    kernel = L2NormalizedRows(element_count(source) // depth, depth)
    zero_point = quantization_of(source).zero_point
    # A row is summed up before its first element is written.
    return op.call(kernel, {"zero_point": zero_point}, in_place=[0])


LOWERINGS = {"L2_NORMALIZATION": lower_l2_normalization}
INT16_LOWERINGS = {"SOFTMAX": lower_softmax_int16}
