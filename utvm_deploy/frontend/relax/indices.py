"""Keeps the indices that a model computes or is given inside of the tensors that they index.

TVM's kernels read and write wherever an index leads, so a wrong one would leave the arena. Indices
outside become the nearest one inside; ``take`` has a mode for this. Where an input says them, those
outside are refused before a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from utvm_deploy.frontend.relax.operators import operator_name, shape_of
from utvm_deploy.frontend.relax.rewrites import changed
from utvm_deploy.graph.user_arrays import most_added


def with_safe_indices(module: Any, main: str) -> Any:
    """The module with such limits in its function ``main``."""
    return changed(_Limiter(module), module, main)


def places_of(module: Any, main: str) -> tuple[int | None, ...]:
    """Of each input, the greatest place that it may say, such as a token; None if it says none.

    The least is 0. ``take`` of the mode "fast" reads the places, so its caller must keep within.
    """
    function = module[main]
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else ()
    made = {one.var: one.value for block in blocks for one in block.bindings}
    found: dict[Any, int] = {}
    for call in made.values():
        if operator_name(call) == "relax.take" and str(call.attrs.mode) == "fast":
            data, (indices, added) = call.args[0].ty.shape, _source(call.args[1], made)
            extent = data[int(call.attrs.axis or 0)]
            if indices is not None and isinstance(extent, tirx.IntImm):
                most = max(int(extent) - 1 - added, 0)
                found[indices] = min(found.get(indices, most), most)
    return tuple(found.get(one) for one in function.params)


#: Operators that hand integers on as they are.
_HANDING = ("relax.astype", "relax.expand_dims", "relax.reshape", "relax.squeeze")


def _source(indices: Any, made: Mapping[Any, Any]) -> tuple[Any, int]:
    """The parameter that indices are, and what is added to it; None if they are something else.

    Of sums, only those with a constant that begins with 0: of others, the least is not 0.
    """
    added = 0
    while True:
        if isinstance(indices, relax.Var):
            if indices not in made:
                return indices, added
            indices = made[indices]
        elif operator_name(indices) in _HANDING:
            indices = indices.args[0]
        elif operator_name(indices) == "relax.add":
            known = [one for one in indices.args if isinstance(one, ir.GenericConst)]
            others = [one for one in indices.args if not isinstance(one, ir.GenericConst)]
            if len(known) != 1:
                return None, 0
            more = most_added(known[0].value.numpy(), shape_of(others[0]))
            if more is None:
                return None, 0
            added, indices = added + more, others[0]
        else:
            return None, 0


@relax.expr_functor.mutator
class _Limiter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_name(call)
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
