"""Rewrites of a Relax module before its layout is chosen; each keeps the values.

- TVM's ONNX importer makes PrimFuncs of Clip. They become ``maximum`` and ``minimum`` again, which
  a product can absorb.
- A one-dimensional convolution becomes a two-dimensional one of a single row. So do the bias and
  the activation behind it, which the convolution can absorb then.
- A permutation that undoes the one before it is removed, and a broadcast to an equal shape.
- Zeros that are added around the image of a convolution become the padding of the convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import TensorLoad
from tvm.tirx import stmt as tir

from utvm_deploy.frontend.relax.operators import number_of, operator_name


def with_rewrites(module: Any, main: str) -> Any:
    """The module with every rewrite done in its function ``main``."""
    return changed(_Rewriter(module), module, main)


def with_extremes(module: Any, main: str) -> Any:
    """The module with ``maximum`` and ``minimum`` for ``clip``, whose layout TVM cannot change."""
    return changed(_Extremes(module), module, main)


def with_clips(module: Any, main: str) -> Any:
    """The module with ``clip`` where ``with_extremes`` left a minimum of a maximum."""
    return changed(_Clips(module), module, main)


def without_dropouts(module: Any, main: str) -> Any:
    """The module without dropouts, as they do nothing in inference."""
    return with_dropouts(module, main, lambda x, _rate: x)


def with_dropouts(module: Any, main: str, instead: Callable[[Any, float], Any]) -> Any:
    """The module with ``instead(x, rate)`` for each dropout of ``x``; the same if it has none."""
    found = set[str]()

    def visit(one: Any) -> None:
        found.add(operator_name(one))

    relax.analysis.post_order_visit(module[main], visit)
    is_needed = "relax.nn.dropout" in found
    return changed(_Dropouts(module, instead), module, main) if is_needed else module


def changed(mutator: Any, module: Any, main: str) -> Any:
    """The module whose function ``main`` a mutator has changed."""
    mutator.builder_.update_func(module.get_global_var(main), mutator.visit_expr(module[main]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Dropouts(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, instead: Callable[[Any, float], Any]) -> None:
        super().__init__(module)
        self._instead = instead

    def visit_tuple_getitem_(self, part: Any) -> Any:
        part = self.visit_expr_post_order(part)
        made = part.tuple_value
        made = self.lookup_binding(made) if isinstance(made, relax.Var) else made
        if operator_name(made) != "relax.nn.dropout" or part.index:
            return part
        return self._instead(made.args[0], float(made.attrs.rate))


@relax.expr_functor.mutator
class _Extremes(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op != ir.Op.get("relax.clip"):
            return call
        x, *bounds = call.args
        for bound, function in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
            if math.isfinite(float(bound.value)):
                x = self.builder_.emit(function(x, relax.const(float(bound.value), x.ty.dtype)))
        return x


@relax.expr_functor.mutator
class _Clips(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        made = self._of(call, "relax.minimum")
        if made is None or not isinstance(made[0], relax.Var):
            return call
        source = self._of(self.lookup_binding(made[0]), "relax.maximum")
        return call if source is None else relax.op.clip(source[0], source[1], made[1])

    def _of(self, call: Any, name: str) -> tuple[Any, float] | None:
        """The operand and the number of a call of an operator; None of another one."""
        if not isinstance(call, ir.Call) or call.op != ir.Op.get(name):
            return None
        number = number_of(call.args[1])
        return None if number is None else (call.args[0], number)


#: What a convolution absorbs: a bias, a factor, an activation.
_OF_ELEMENTS = ("relax.add", "relax.clip", "relax.multiply", "relax.nn.relu", "relax.subtract")


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
        if call.op.name == "relax.permute_dims":
            return self._permuted(call)
        if call.op.name == "relax.broadcast_to":
            return call.args[0] if list(call.args[1]) == list(call.args[0].ty.shape) else call
        if call.op.name == "relax.nn.conv1d":
            return self._of_one_row(call)
        if call.op.name == "relax.nn.conv2d":
            return self._with_padding(call)
        if call.op.name in _OF_ELEMENTS:
            return self._before_squeeze(call)
        return call

    def _maker(self, x: Any) -> Any:
        """The call that makes a variable; None of a constant."""
        return self.lookup_binding(x) if isinstance(x, relax.Var) else None

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

    def _permuted(self, call: Any) -> Any:
        """What was permuted, if a second permutation undoes the first one."""
        made = self._maker(call.args[0])
        if operator_name(made) != "relax.permute_dims":
            return call
        first, second = (one.attrs.axes for one in (made, call))
        if first is None or second is None:
            return call
        order = [int(first[int(axis)]) for axis in second]
        return made.args[0] if order == sorted(order) else call

    def _of_one_row(self, call: Any) -> Any:
        x, weights = call.args
        a = call.attrs
        if (a.data_layout, a.kernel_layout) != ("NCW", "OIW"):
            return call
        left, right = a.padding if len(a.padding) == 2 else (a.padding[0],) * 2
        x, (more_left, more_right) = self._unpadded(x, 1)
        emit = self.builder_.emit
        image = emit(relax.op.expand_dims(x, [2]))
        rows = emit(relax.op.expand_dims(weights, [2]))
        made = emit(
            relax.op.nn.conv2d(
                image,
                rows,
                strides=(1, a.strides[0]),
                padding=(0, left + more_left, 0, right + more_right),
                dilation=(1, a.dilation[0]),
                groups=a.groups,
            )
        )
        return relax.op.squeeze(made, [2])

    def _before_squeeze(self, call: Any) -> Any:
        """An operator on one row and a constant, on the image that the row was taken from."""
        x, *others = call.args
        made = self._maker(x)
        if operator_name(made) != "relax.squeeze":
            return call
        (image,) = made.args
        shape = [int(extent) for extent in image.ty.shape.values]
        if len(shape) != 4 or shape[2] != 1 or list(call.ty.shape) != list(x.ty.shape):
            return call
        operands: list[Any] = [image]
        for one in others:
            if isinstance(one, ir.GenericConst):
                operands.append(_of_rows(one))
                continue
            if not isinstance(one, tirx.IntImm | tirx.FloatImm):
                return call
            operands.append(one)
        done = self.builder_.emit(ir.Call(call.op, operands, call.attrs))
        return relax.op.squeeze(done, [2])

    def _with_padding(self, call: Any) -> Any:
        """``conv2d`` with the zeros around its image as padding."""
        x, weights = call.args
        a = call.attrs
        if a.data_layout != "NCHW" or len(a.padding) != 4:
            return call
        image, (top, bottom, left, right) = self._unpadded(x, 2)
        if image is x:
            return call
        added = (top, left, bottom, right)
        return relax.op.nn.conv2d(
            image,
            weights,
            strides=a.strides,
            padding=[int(one) + more for one, more in zip(a.padding, added, strict=True)],
            dilation=a.dilation,
            groups=a.groups,
            data_layout=a.data_layout,
            kernel_layout=a.kernel_layout,
            out_layout=a.out_layout,
            out_dtype=a.out_dtype,
        )

    def _unpadded(self, x: Any, axes: int) -> tuple[Any, list[int]]:
        """The image inside of zeros along its last axes, and how many zeros: before, behind."""
        none = x, [0] * (2 * axes)
        made = self._maker(x)
        if operator_name(made) != "relax.nn.pad":
            return none
        widths = [int(one) for one in made.attrs.pad_width]
        outer, inner = widths[: -2 * axes], widths[-2 * axes :]
        is_zero = made.attrs.pad_mode == "constant" and float(made.attrs.pad_value) == 0.0
        return none if not is_zero or any(outer) or min(inner) < 0 else (made.args[0], inner)


def _of_rows(constant: Any) -> Any:
    """A constant for [batch, channels, columns] as one for images of a single row."""
    values = constant.value.numpy()
    if values.ndim > 1:
        values = np.expand_dims(values, -2)
    return relax.const(values, str(constant.ty.dtype))


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
