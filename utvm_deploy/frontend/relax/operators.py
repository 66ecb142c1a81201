"""Chains of Relax operators that become one of our operators, which has fast kernels.

A chain begins with a product with constant weights (``conv2d``, ``matmul``), or with a pool. A
product may be followed by additions and multiplications by constants of each channel: a bias, or a
batch normalization, which are folded into weights and bias. The chain ends with an activation, if
there is one. It becomes a call of a packed function, ``utvm.KIND``, with the attributes as a text.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax, tirx

Array: TypeAlias = NDArray[Any]

PREFIX = "utvm."


@dataclass(frozen=True, eq=False)
class Chain:
    """The begin of a chain, and what was folded into it. The last axis has the channels."""

    kind: str
    source: Any  # the Relax variable that it reads
    attributes: Mapping[str, Any]
    shape: tuple[int, ...]
    weights: Array | None = None  # output channels first, as float64; None of a pool
    bias: Array | None = None
    limits: tuple[float, float] | None = None

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.shape[-1]

    def affine(self, factors: Array, addends: Array) -> Chain | None:
        """The product times a factor for each channel, plus an addend; None if that overflows."""
        assert self.weights is not None and self.bias is not None
        along = factors.reshape(-1, *(1,) * (self.weights.ndim - 1))
        weights, bias = self.weights * along, self.bias * factors + addends
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            return None
        return replace(self, weights=weights, bias=bias)

    def limited(self, least: float, most: float) -> Chain:
        """The chain with an activation behind it; several in a row are one."""
        low, high = self.limits or (-math.inf, math.inf)
        both = (min(max(low, least), most), min(max(high, least), most))
        return replace(self, limits=both)


def with_our_operators(module: Any, main: str) -> Any:
    """The module with each chain replaced by one call."""
    function = module[main]
    if not function.body.blocks:
        return module  # it only hands out constants or inputs
    (block,) = function.body.blocks
    return with_bindings(module, main, list(_rewritten(block.bindings, function.body.body)))


def with_bindings(module: Any, main: str, bindings: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    """The module whose function ``main`` has other bindings in its only block.

    ``more`` are further parameters, the last ones.
    """
    end = module[main].body.body
    return with_body(module, main, relax.SeqExpr([relax.DataflowBlock(bindings)], end), more)


def with_body(module: Any, main: str, body: Any, more: Sequence[Any] = ()) -> Any:
    """The module whose function ``main`` has another body, and ``more`` parameters."""
    function = module[main]
    params = [*function.params, *more]
    made = relax.Function(params, body, function.ret_ty, True, function.attrs)
    changed = ir.IRModule({**dict(module.functions_items()), module.get_global_var(main): made})
    return relax.transform.Normalize()(changed)


def _rewritten(bindings: Any, result: Any) -> Iterator[Any]:
    readers = readers_of(bindings, result)
    gone: set[Any] = set()
    for binding in bindings:
        if binding.var in gone:
            continue
        chain = _start(binding.value)
        if chain is None:
            yield binding
            continue
        last = binding.var
        while len(readers[last]) == 1 and readers[last][0] is not None:
            (after,) = readers[last]
            longer = _absorbed(chain, after.value, last)
            if longer is None:
                break
            chain, last = longer, after.var
            gone.add(last)
        yield relax.VarBinding(last, _call(chain, last.ty))


def readers_of(bindings: Any, result: Any) -> Mapping[Any, Sequence[Any]]:
    """Variable -> the bindings that read it, as often as they do; None stands for the result."""
    found = defaultdict[Any, list[Any]](list)
    for binding in (*bindings, None):
        for var in variables_of(result if binding is None else binding.value):
            found[var].append(binding)
    return found


def variables_of(expression: Any) -> Iterator[Any]:
    """The variables that an expression reads, as often as it reads them."""
    if isinstance(expression, relax.Var):
        yield expression
    elif isinstance(expression, ir.Call):
        for argument in expression.args:
            yield from variables_of(argument)
    elif isinstance(expression, relax.Tuple):
        for field in expression.fields:
            yield from variables_of(field)
    elif isinstance(expression, relax.TupleGetItem):
        yield from variables_of(expression.tuple_value)


def _call(chain: Chain, ty: Any) -> Any:
    """The call that replaces the chain."""
    operands = [chain.source]
    if chain.weights is not None and chain.bias is not None:
        weights = chain.weights.astype(np.float32)
        if chain.kind == "DEPTHWISE_CONV_2D":
            # 1HWC, as TFLite has them.
            weights = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))
        operands += [relax.const(weights), relax.const(chain.bias.astype(np.float32))]
    return our_call(chain.kind, operands, ty, {**chain.attributes, "limits": chain.limits})


def our_call(kind: str, operands: Sequence[Any], ty: Any, attributes: Mapping[str, Any]) -> Any:
    """A call of one of our operators, whose output is of the type ``ty``."""
    text = ir.StringImm(json.dumps(attributes))
    return relax.call_pure_packed(PREFIX + kind, *operands, text, ty_args=[ty])


def operator_name(value: Any) -> str:
    """The name of the operator that an expression calls; empty if it calls none."""
    return str(getattr(getattr(value, "op", None), "name", ""))


def _start(value: Any) -> Chain | None:
    """The chain that an operator begins; None if it begins none."""
    start = _STARTS.get(operator_name(value))
    return None if start is None else start(value)


def _matmul(call: Any) -> Chain | None:
    x, weights = call.args
    constant = constant_of(weights)
    if (
        constant is None
        or constant.ndim != 2
        or not isinstance(x, relax.Var)
        or len(shape_of(x)) < 2
    ):
        return None
    shape = shape_of(call)
    turned = np.ascontiguousarray(constant.T).astype(np.float64)
    return Chain("FULLY_CONNECTED", x, {}, shape, turned, np.zeros(shape[-1]))


def _conv2d(call: Any) -> Chain | None:
    x, weights = call.args
    constant, a = constant_of(weights), call.attrs
    if constant is None or not isinstance(x, relax.Var):
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
    return Chain(kind, x, attributes, shape, constant.astype(np.float64), np.zeros(shape[3]))


def _pool(call: Any) -> Chain | None:
    (x,), a = call.args, call.attrs
    if not isinstance(x, relax.Var) or (a.layout, a.out_layout) != ("NHWC", "NHWC"):
        return None
    if str(x.ty.dtype) != "float32" or any(int(one) != 1 for one in a.dilation):
        return None
    is_average = call.op.name == "relax.nn.avg_pool2d"
    top, left, bottom, right = (int(one) for one in a.padding)
    if is_average and a.count_include_pad and (top or left or bottom or right):
        return None
    window, strides = ([int(one) for one in pair] for pair in (a.pool_size, a.strides))
    shape, sides = shape_of(call), shape_of(x)[1:3]
    padded = (sides[0] + top + bottom, sides[1] + left + right)
    floors = [(p - w) // s + 1 for p, w, s in zip(padded, window, strides, strict=True)]
    if floors != list(shape[1:3]):
        return None  # windows that reach beyond the padding
    attributes = {"window": window, "strides": strides, "padding": [top, bottom, left, right]}
    return Chain("AVERAGE_POOL_2D" if is_average else "MAX_POOL_2D", x, attributes, shape)


_STARTS: Mapping[str, Callable[[Any], Chain | None]] = {
    "relax.nn.avg_pool2d": _pool,
    "relax.nn.max_pool2d": _pool,
    "relax.matmul": _matmul,
    "relax.nn.conv2d": _conv2d,
}


def _absorbed(chain: Chain, value: Any, last: Any) -> Chain | None:
    """The chain with an operator behind it folded in; None if it cannot be."""
    name = operator_name(value)
    if not name or not isinstance(value.ty, relax.TensorType) or shape_of(value) != chain.shape:
        return None
    if name == "relax.nn.relu":
        return chain.limited(0.0, math.inf)
    if name in ("relax.maximum", "relax.minimum"):
        left, right = value.args
        bound = number_of(right) if left.same_as(last) else number_of(left)
        if bound is None or math.isnan(bound):
            return None
        is_least = name == "relax.maximum"
        return chain.limited(bound, math.inf) if is_least else chain.limited(-math.inf, bound)
    if name == "relax.clip":
        least, most = (number_of(argument) for argument in value.args[1:])
        if least is None or most is None or not least <= most:
            return None
        return chain.limited(least, most)
    if name not in _AFFINE or chain.limits is not None or chain.weights is None:
        return None
    left, right = value.args
    is_first = left.same_as(last)
    constant = _per_channel(right if is_first else left, chain.channels)
    if constant is None or not (is_first or name in ("relax.add", "relax.multiply")):
        return None
    with np.errstate(all="ignore"):
        return chain.affine(*_AFFINE[name](constant))


#: Operator -> the factors and the addends that it stands for, from its constant.
_AFFINE: Mapping[str, Callable[[Array], tuple[Array, Array]]] = {
    "relax.add": lambda c: (np.ones_like(c), c),
    "relax.subtract": lambda c: (np.ones_like(c), -c),
    "relax.multiply": lambda c: (c, np.zeros_like(c)),
    "relax.divide": lambda c: (1 / c, np.zeros_like(c)),
}


def _per_channel(expression: Any, channels: int) -> Array | None:
    """A constant that has one number, or one for each channel, as float64."""
    constant = constant_of(expression)
    if constant is None or constant.size not in (1, channels):
        return None
    if constant.size > 1 and constant.shape[-1] != channels:
        return None
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (channels,))


def constant_of(expression: Any) -> Array | None:
    """The values of a constant of float32; None if it is none."""
    if not isinstance(expression, ir.GenericConst):
        return None
    array: Array = expression.value.numpy()
    return array if array.dtype == np.float32 else None


def scalar(value: float) -> Any:
    """A number as a constant of float32."""
    return relax.const(value, "float32")


def number_of(expression: Any) -> float | None:
    """The value of a constant of one number; None if it is none."""
    if isinstance(expression, tirx.IntImm | tirx.FloatImm):
        return float(expression.value)
    constant = constant_of(expression)
    return float(constant.reshape(-1)[0]) if constant is not None and constant.size == 1 else None


def shape_of(expression: Any) -> tuple[int, ...]:
    """The shape of an expression whose shape is known."""
    return tuple(int(extent) for extent in expression.ty.shape.values)
