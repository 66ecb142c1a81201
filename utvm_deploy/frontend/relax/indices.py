"""Keeps the indices that a model computes or is given inside of the tensors that they index.

TVM's kernels read and write wherever an index leads, so a wrong one would leave the arena. Indices
outside become the nearest one inside; ``take`` has a mode for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx


def with_safe_indices(module: Any, main: str) -> Any:
    """The module with such limits in its function ``main``."""
    variable = module.get_global_var(main)
    mutator = _Limiter(module)
    mutator.builder_.update_func(variable, mutator.visit_expr(module[main]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Limiter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        if name == "relax.take" and str(call.attrs.mode) == "fast":
            return relax.op.take(*call.args, axis=call.attrs.axis, mode="clip")
        if name not in _LIMITS or isinstance(call.args[1], ir.GenericConst):
            return call
        data, indices, *others = call.args
        extents = _LIMITS[name](call, data.ty.shape, indices.ty.shape)
        if not all(isinstance(one, tirx.IntImm) for one in extents):
            return call
        dtype, emit = str(indices.ty.dtype), self.builder_.emit
        most = np.array([int(one) - 1 for one in extents])
        # Its kernel counts negative indices from the end.
        least = -1 - most if name == "relax.scatter_elements" else np.zeros_like(most)
        inside = emit(relax.op.maximum(indices, relax.const(least, dtype)))
        inside = emit(relax.op.minimum(inside, relax.const(most, dtype)))
        return relax.Call(call.op, [data, inside, *others], call.attrs, call.ty_args)


def _along_axis(call: Any, data: Any, indices: Any) -> Sequence[Any]:
    return [data[int(call.attrs.axis) % len(data)]]


def _of_last_axis(call: Any, data: Any, indices: Any) -> Sequence[Any]:
    begin = int(getattr(call.attrs, "batch_dims", 0) or 0)
    return [data[begin + place] for place in range(int(indices[len(indices) - 1]))]


#: Operator -> the extents that its indices are for: one, or one for each place of the last axis.
_LIMITS = {
    "relax.gather_elements": _along_axis,
    "relax.scatter_elements": _along_axis,
    "relax.gather_nd": _of_last_axis,
    "relax.scatter_nd": _of_last_axis,
}
