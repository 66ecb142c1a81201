"""Chains of Relax operators that become one of our operators, which has fast kernels.

A chain begins with a product with constant weights (``conv2d``, ``matmul``). Additions and
multiplications by constants of each channel follow: a bias, or a batch normalization, which are
folded into weights and bias. It ends with an activation, if there is one. Each chain becomes a call
of a packed function, ``utvm.KIND``, with the attributes as a text.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax, tirx

Array: TypeAlias = NDArray[Any]

PREFIX = "utvm."


@dataclass(frozen=True, eq=False)
class Product:
    """A product with weights, and what was folded into it. The last axis has the channels."""

    kind: str
    source: Any  # the Relax variable that it reads
    weights: Array  # output channels first, as float64
    bias: Array
    attributes: Mapping[str, Any]
    shape: tuple[int, ...]
    limits: tuple[float, float] | None = None

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.shape[-1]

    def scaled(self, factors: Array) -> Product:
        """The product times a factor for each channel."""
        along = factors.reshape(-1, *(1,) * (self.weights.ndim - 1))
        return replace(self, weights=self.weights * along, bias=self.bias * factors)

    def limited(self, least: float, most: float) -> Product:
        """The product with an activation behind it; several in a row are one."""
        low, high = self.limits or (-math.inf, math.inf)
        both = (min(max(low, least), most), min(max(high, least), most))
        return replace(self, limits=both)


def with_our_operators(module: Any, main: str) -> Any:
    """The module with each chain replaced by one call."""
    function = module[main]
    (block,) = function.body.blocks
    bindings = list(_rewritten(block.bindings, function.body.body))
    sequence = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    made = relax.Function(function.params, sequence, function.ret_ty, True, function.attrs)
    changed = ir.IRModule({**dict(module.functions_items()), module.get_global_var(main): made})
    return relax.transform.Normalize()(changed)


def _rewritten(bindings: Any, result: Any) -> Iterator[Any]:
    uses = _uses(bindings, result)
    following = _readers(bindings)
    gone: set[Any] = set()
    for binding in bindings:
        if binding.var in gone:
            continue
        product = _product(binding.value)
        if product is None:
            yield binding
            continue
        last = binding.var
        while uses[last] == 1 and last in following:
            after = following[last]
            longer = _absorbed(product, after.value, last)
            if longer is None:
                break
            product, last = longer, after.var
            gone.add(last)
        yield relax.VarBinding(last, _call(product, last.ty))


def _uses(bindings: Any, result: Any) -> Counter[Any]:
    """How often each variable is read."""
    found: Counter[Any] = Counter()
    for expression in (*(binding.value for binding in bindings), result):
        found.update(_variables(expression))
    return found


def _readers(bindings: Any) -> dict[Any, Any]:
    """The last binding that reads a variable."""
    return {var: binding for binding in bindings for var in _variables(binding.value)}


def _variables(expression: Any) -> Iterator[Any]:
    if isinstance(expression, relax.Var):
        yield expression
    elif isinstance(expression, ir.Call):
        for argument in expression.args:
            yield from _variables(argument)
    elif isinstance(expression, relax.Tuple):
        for field in expression.fields:
            yield from _variables(field)
    elif isinstance(expression, relax.TupleGetItem):
        yield from _variables(expression.tuple_value)


def _call(product: Product, ty: Any) -> Any:
    """The call that stands for the chain."""
    attributes = {**product.attributes, "limits": product.limits}
    weights = product.weights.astype(np.float32)
    if product.kind == "DEPTHWISE_CONV_2D":
        weights = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))  # 1HWC, as TFLite has them
    bias = product.bias.astype(np.float32)
    return relax.call_pure_packed(
        PREFIX + product.kind,
        product.source,
        relax.const(weights),
        relax.const(bias),
        ir.StringImm(json.dumps(attributes)),
        ty_args=[ty],
    )


def _product(value: Any) -> Product | None:
    """The product that begins a chain; None if it is none that we have."""
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return None
    start = _STARTS.get(value.op.name)
    return None if start is None else start(value)


def _matmul(call: Any) -> Product | None:
    x, weights = call.args
    constant = _constant(weights)
    if constant is None or constant.ndim != 2 or not _is_variable(x) or len(shape_of(x)) < 2:
        return None
    shape = shape_of(call)
    turned = np.ascontiguousarray(constant.T).astype(np.float64)
    return Product("FULLY_CONNECTED", x, turned, np.zeros(shape[-1]), {}, shape)


def _conv2d(call: Any) -> Product | None:
    x, weights = call.args
    constant, a = _constant(weights), call.attrs
    if constant is None or not _is_variable(x):
        return None
    if (a.data_layout, a.kernel_layout, a.out_layout) != ("NHWC", "OHWI", "NHWC"):
        return None
    shape, channels, groups = shape_of(call), shape_of(x)[3], int(a.groups)
    depthwise = groups == channels and groups > 1
    top, left, bottom, right = (int(one) for one in a.padding)
    attributes = {
        "strides": [int(one) for one in a.strides],
        "dilations": [int(one) for one in a.dilation],
        "padding": [top, bottom, left, right],
        "depth_multiplier": shape[3] // channels if depthwise else 1,
    }
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return Product(kind, x, constant.astype(np.float64), np.zeros(shape[3]), attributes, shape)


_STARTS: Mapping[str, Callable[[Any], Product | None]] = {
    "relax.matmul": _matmul,
    # "relax.nn.conv2d": _conv2d,
}


def _absorbed(product: Product, value: Any, last: Any) -> Product | None:
    """The product with an operator behind it folded in; None if it cannot be."""
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return None
    if shape_of(value) != product.shape:
        return None
    name = value.op.name
    if name == "relax.nn.relu":
        return product.limited(0.0, math.inf)
    if name in ("relax.maximum", "relax.minimum"):
        left, right = value.args
        bound = _number(right) if _same(left, last) else _number(left)
        if bound is None or math.isnan(bound):
            return None
        if name == "relax.maximum":
            return product.limited(bound, math.inf)
        return product.limited(-math.inf, bound)
    if name == "relax.clip":
        bounds = [_number(argument) for argument in value.args[1:]]
        least, most = bounds
        if least is None or most is None:
            return None
        return product.limited(least, most)
    if name not in _AFFINE or product.limits is not None:
        return None
    left, right = value.args
    is_first = _same(left, last)
    constant = _per_channel(right if is_first else left, product.channels)
    if constant is None or not (is_first or name in ("relax.add", "relax.multiply")):
        return None
    with np.errstate(all="ignore"):
        folded = _AFFINE[name](product, constant)
    is_finite = np.isfinite(folded.weights).all() and np.isfinite(folded.bias).all()
    return folded if is_finite else None


_AFFINE: Mapping[str, Callable[[Product, Array], Product]] = {
    "relax.add": lambda product, c: replace(product, bias=product.bias + c),
    "relax.subtract": lambda product, c: replace(product, bias=product.bias - c),
    "relax.multiply": lambda product, c: product.scaled(c),
    "relax.divide": lambda product, c: product.scaled(1 / c),
}


def _per_channel(expression: Any, channels: int) -> Array | None:
    """A constant that has one number, or one for each channel, as float64."""
    constant = _constant(expression)
    if constant is None or constant.size not in (1, channels):
        return None
    if constant.size > 1 and constant.shape[-1] != channels:
        return None
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (channels,))


def _constant(expression: Any) -> Array | None:
    """The values of a constant of float32; None if it is none."""
    if not isinstance(expression, ir.GenericConst):
        return None
    array: Array = expression.value.numpy()
    return array if array.dtype == np.float32 else None


def _number(expression: Any) -> float | None:
    if isinstance(expression, tirx.IntImm | tirx.FloatImm):
        return float(expression.value)
    constant = _constant(expression)
    return float(constant.reshape(-1)[0]) if constant is not None and constant.size == 1 else None


def _is_variable(expression: Any) -> bool:
    return isinstance(expression, relax.Var)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, relax.Var) and bool(one.same_as(other))


def shape_of(expression: Any) -> tuple[int, ...]:
    """The shape of an expression whose shape is known."""
    return tuple(int(extent) for extent in expression.ty.shape.values)
