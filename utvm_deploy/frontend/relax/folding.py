"""Constants of constants, computed by NumPy where that gives the same bytes as TVM.

TVM's FoldConstant builds a function by LLVM for each call, 25 ms each: most of the time of an
import. Sums and roots of float32 are rounded by IEEE 754 in both. What is not in the table is left
to TVM's pass behind this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from utvm_deploy.graph.model import Array

#: A result is no larger, as no weights of a microcontroller are.
MOST_ELEMENTS = 1 << 24

_Fold = Callable[[Any, Sequence[Array]], Array]


def _by_position(function: Callable[..., Any]) -> _Fold:
    return lambda call, values: np.asarray(function(*values))


def _to_shape(call: Any, values: Sequence[Array]) -> Array:
    """For calls that keep the order of the elements."""
    return values[0].reshape([int(extent) for extent in call.ty.shape])


def _permuted(call: Any, values: Sequence[Array]) -> Array:
    axes = call.attrs.axes
    return np.transpose(values[0], None if axes is None else [int(axis) for axis in axes])


def _slice(call: Any, values: Sequence[Array]) -> Array:
    axes, starts, ends, steps = ([int(one) for one in given] for given in call.args[1:5])
    parts = [slice(None)] * values[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        parts[axis] = slice(start, end, step)
    part = values[0][tuple(parts)]
    assert list(part.shape) == [int(extent) for extent in call.ty.shape]
    return part


#: Operators for which NumPy and TVM give the same bytes.
FOLDS: Mapping[str, _Fold] = {
    "relax.add": _by_position(np.add),
    "relax.arange": lambda call, values: np.arange(*map(int, call.args), dtype=str(call.ty.dtype)),
    "relax.divide": _by_position(np.divide),
    "relax.expand_dims": _to_shape,
    "relax.full": lambda call, values: np.full([int(one) for one in call.ty.shape], values[0]),
    "relax.multiply": _by_position(np.multiply),
    "relax.negative": _by_position(np.negative),
    "relax.permute_dims": _permuted,
    "relax.reshape": _to_shape,
    "relax.sqrt": _by_position(np.sqrt),
    "relax.squeeze": _to_shape,
    "relax.strided_slice": _slice,
    "relax.subtract": _by_position(np.subtract),
}


_NO_TENSOR = relax.ShapeExpr | relax.Tuple | tirx.IntImm


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """The constant that a call gives; the call, if it gives none."""
        call = self.visit_expr_post_order(call)
        fold = FOLDS.get(call.op.name) if isinstance(call.op, ir.Op) else None
        # Shapes, and the numbers of a slice or a range, are operands that hold no tensor.
        operands = [one for one in call.args if not isinstance(one, _NO_TENSOR)]
        values = [self._constant(one) for one in operands]
        if fold is None or any(value is None or value.dtype != "float32" for value in values):
            return call
        dtype = str(call.ty.dtype)
        is_known = dtype == "float32" or (not values and dtype == "int64")  # positions
        if not is_known or math.prod(int(one) for one in call.ty.shape) > MOST_ELEMENTS:
            return call
        with np.errstate(all="ignore"):  # infinities and NaN are values, too
            return relax.const(np.asarray(fold(call, values), order="C"), dtype)

    def _constant(self, operand: Any) -> Any:
        if isinstance(operand, relax.Var):
            operand = self.lookup_binding(operand)
        return operand.value.numpy() if isinstance(operand, ir.GenericConst) else None


@tvm.transform.module_pass(opt_level=0, name="FoldByNumPy")
class FoldByNumPy:
    """The pass for every Relax function of a module."""

    def transform_module(self, module: Any, _context: Any) -> Any:
        """The module, with such calls as constants."""
        mutator = _Folder(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                mutator.builder_.update_func(variable, mutator.visit_expr(function))
        return mutator.builder_.get()
