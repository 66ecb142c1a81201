"""Rewrites of a Relax module before its layout is chosen; each keeps the values.

- TVM's ONNX importer makes PrimFuncs of Clip. They become ``maximum`` and ``minimum`` again, which
  a product can absorb.
- A one-dimensional convolution becomes a two-dimensional one of a single row.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import TensorLoad
from tvm.tirx import stmt as tir


def with_rewrites(module: Any, main: str) -> Any:
    """The module with every rewrite done in its function ``main``."""
    variable = module.get_global_var(main)
    mutator = _Rewriter(module)
    mutator.builder_.update_func(variable, mutator.visit_expr(module[main]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._module = module

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, ir.Op):
            return call
        if call.op.name == "relax.call_tir":
            return self._extremum(call)
        if call.op.name == "relax.nn.conv1d":
            return self._of_one_row(call)
        return call

    def _extremum(self, call: Any) -> Any:
        """``maximum`` or ``minimum`` of a tensor and a number, instead of such a PrimFunc."""
        found = _extremum_of(self._module[call.args[0]])
        operands = call.args[1].fields
        if found is None or len(operands) > 2:
            return call
        operator, bound = found
        if bound is None:
            if len(operands) != 2 or not isinstance(operands[1], ir.GenericConst):
                return call
            return operator(operands[0], operands[1])
        return operator(operands[0], relax.const(bound, "float32"))

    def _of_one_row(self, call: Any) -> Any:
        x, weights = call.args
        a = call.attrs
        if (a.data_layout, a.kernel_layout) != ("NCW", "OIW"):
            return call
        emit = self.builder_.emit
        image = emit(relax.op.expand_dims(x, [2]))
        rows = emit(relax.op.expand_dims(weights, [2]))
        left, right = a.padding if len(a.padding) == 2 else (a.padding[0],) * 2
        made = emit(
            relax.op.nn.conv2d(
                image,
                rows,
                strides=(1, a.strides[0]),
                padding=(0, left, 0, right),
                dilation=(1, a.dilation[0]),
                groups=a.groups,
            )
        )
        return relax.op.squeeze(made, [2])


def _extremum_of(function: Any) -> tuple[Any, float | None] | None:
    """The Relax operator of a PrimFunc that is max or min of its first input and one number.

    The number is a constant of the function, or None if it is the second input. None for all other
    functions.
    """
    stores: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tir.BufferStore, stores.append))
    if len(stores) != 1 or not isinstance(stores[0].value, tirx.Max | tirx.Min):
        return None
    value = stores[0].value
    operator = relax.op.maximum if isinstance(value, tirx.Max) else relax.op.minimum
    left, right = value.a, value.b
    if not isinstance(left, TensorLoad) or not left.source.same_as(function.params[0]):
        return None
    if list(left.indices) != list(stores[0].indices) or str(value.ty) != "float32":
        return None
    if isinstance(right, tirx.FloatImm) and len(function.params) == 2:
        return operator, float(right.value)
    is_second = isinstance(right, TensorLoad) and len(right.indices) == 0
    return (operator, None) if is_second and len(function.params) == 3 else None
