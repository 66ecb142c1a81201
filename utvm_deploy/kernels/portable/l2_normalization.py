"""L2_NORMALIZATION: each row is divided by the root of the sum of its squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operands import element_count, quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import INT8_MAX, INT8_MIN, clamped, requantize
from utvm_deploy.kernels.portable.skeletons import compute_per_output, initialize_apart

# The output's scale is 1/128.
_OUTPUT_BITS = 7


@dataclass(frozen=True)
class L2NormalizedRows:
    """Shape parameters: rows of ``depth`` elements of int8."""

    rows: int
    depth: int

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

        def per_row(name: str, of_row: Callable[[Any], Any]) -> Any:
            return te.compute((self.rows,), of_row, name=name)

        squares = per_row("squares", lambda r: te.sum(value(r, k) * value(r, k), axis=k))

        def of_squares(name: str) -> Any:
            return per_row(name, lambda r: tirx.call_pure_extern("int32", name, squares[r]))

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


def lower_l2_normalization(op: Operation) -> KernelCall:
    """L2_NORMALIZATION along the last dimension."""
    source = op.source
    depth = source.shape[-1]
    kernel = L2NormalizedRows(element_count(source) // depth, depth)
    zero_point = quantization_of(source).zero_point
    # A row is summed up before its first element is written.
    return op.call(kernel, {"zero_point": zero_point}, in_place=[0])


LOWERINGS = {"L2_NORMALIZATION": lower_l2_normalization}
