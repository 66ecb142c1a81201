"""Gradients that TVM's Relax has not, or has otherwise than PyTorch.

Each function takes the output's variable, the call, and the gradient of the output, and gives those
of the operands, as ``relax.op.register_gradient`` has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

from tvm import ir, relax
from tvm.relax import op

from utvm_deploy.frontend.relax.operators import number_of, shape_of
from utvm_deploy.frontend.training.convolutions import convolution_gradient

_Gradient: TypeAlias = Callable[[Any, Any, Any], list[Any] | None]

#: Above that of TVM's gradients, so that ours replace them.
_LEVEL = 11


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def _where(condition: Any, gradient: Any) -> Any:
    return op.where(condition, gradient, _number(0.0))


def _within(made: Any, low: float | None, high: float | None, gradient: Any) -> Any:
    """The gradient where an output is between bounds; 0 at them, as in PyTorch's ReLU and ReLU6.

    It looks at the output, which the next layer keeps anyway, so the input need not be kept.
    """
    for bound, inside in ((low, op.greater), (high, op.less)):
        if bound is not None and math.isfinite(bound):
            gradient = _where(inside(made, _number(bound)), gradient)
    return gradient


def _relu(made: Any, _call: Any, gradient: Any) -> list[Any]:
    return [_within(made, 0.0, None, gradient)]


def _maximum(made: Any, call: Any, gradient: Any) -> list[Any] | None:
    """Of a tensor and a number; None of two tensors."""
    low = number_of(call.args[1])
    return None if low is None else [_within(made, low, None, gradient), _none_of(call, 1)]


def _minimum(made: Any, call: Any, gradient: Any) -> list[Any] | None:
    """Of a tensor and a number; None of two tensors."""
    high = number_of(call.args[1])
    return None if high is None else [_within(made, None, high, gradient), _none_of(call, 1)]


def _none_of(call: Any, place: int) -> Any:
    return op.grad.no_grad(call.args[place])


def _leaky_relu(made: Any, call: Any, gradient: Any) -> list[Any] | None:
    alpha = float(call.attrs.alpha)
    of = made if alpha > 0 else call.args[0]
    slope = op.multiply(gradient, _number(alpha))
    return [op.where(op.greater(of, _number(0.0)), gradient, slope)]


def _matmul(_made: Any, call: Any, gradient: Any) -> list[Any] | None:
    """Without the transposed copies of TVM's gradient; None where a batch is repeated."""
    (*batch, _, _), (*others, _, _) = map(shape_of, call.args)
    if others not in ([], batch):
        return None
    x, weights = call.args
    rows = "abcd"[: len(batch)]
    own = rows if others else ""
    return [
        op.einsum((gradient, weights), f"{rows}ij,{own}kj->{rows}ik"),
        op.einsum((x, gradient), f"{rows}ik,{rows}ij->{own}kj"),
    ]


def _clip(made: Any, call: Any, gradient: Any) -> list[Any]:
    _, *bounds = call.args
    low, high = map(number_of, bounds)
    return [_within(made, low, high, gradient), *map(op.grad.no_grad, bounds)]


def _gauss(x: Any, factor: float) -> Any:
    """exp(-factor x^2)."""
    return op.exp(op.multiply(op.multiply(x, x), _number(-factor)))


def _erf(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d erf(x) / dx = 2 / sqrt(pi) exp(-x^2)."""
    slope = op.multiply(_gauss(call.args[0], 1.0), _number(2 / math.sqrt(math.pi)))
    return [op.multiply(gradient, slope)]


def _gelu(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d (x F(x)) / dx = F(x) + x f(x), with the normal distribution F and its density f."""
    (x,) = call.args
    erf = op.erf(op.multiply(x, _number(math.sqrt(0.5))))
    distribution = op.multiply(op.add(erf, _number(1.0)), _number(0.5))
    density = op.multiply(_gauss(x, 0.5), _number(1 / math.sqrt(2 * math.pi)))
    return [op.multiply(gradient, op.add(distribution, op.multiply(x, density)))]


def _gelu_tanh(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d (x (1 + t) / 2) / dx = (1 + t) / 2 + x (1 - t^2) u' / 2, with t = tanh(u) and
    u = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    (x,), factor = call.args, math.sqrt(2 / math.pi)
    square = op.multiply(x, x)
    inner = op.add(op.multiply(square, _number(0.044715)), _number(1.0))
    tanh = op.tanh(op.multiply(op.multiply(x, inner), _number(factor)))
    rise = op.multiply(op.add(op.multiply(square, _number(3 * 0.044715)), _number(1.0)), x)
    slope = op.subtract(_number(1.0), op.multiply(tanh, tanh))
    slope = op.multiply(op.multiply(slope, rise), _number(factor))
    whole = op.multiply(op.add(op.add(tanh, _number(1.0)), slope), _number(0.5))
    return [op.multiply(gradient, whole)]


def _rsqrt(made: Any, _call: Any, gradient: Any) -> list[Any]:
    """d x^(-1/2) / dx = -y^3 / 2."""
    cube = op.multiply(op.multiply(made, made), made)
    return [op.multiply(gradient, op.multiply(cube, _number(-0.5)))]


def _square(_made: Any, call: Any, gradient: Any) -> list[Any]:
    return [op.multiply(gradient, op.multiply(call.args[0], _number(2.0)))]


def _reshaped(_made: Any, call: Any, gradient: Any) -> list[Any]:
    return [op.reshape(gradient, shape_of(call.args[0]))]


def _pad(_made: Any, call: Any, gradient: Any) -> list[Any]:
    shape = shape_of(call.args[0])
    begins = [int(one) for one in call.attrs.pad_width][::2]
    ends = [begin + extent for begin, extent in zip(begins, shape, strict=True)]
    return [op.strided_slice(gradient, list(range(len(shape))), begins, ends)]


def _slice(_made: Any, call: Any, gradient: Any) -> list[Any] | None:
    """Zeros around the part that was taken; None where elements are left out between."""
    x, axes, begins, _, *steps = call.args
    shape, part = shape_of(x), shape_of(call)
    if any(int(one) != 1 for given in steps for one in given):
        return None
    widths = [(0, 0)] * len(shape)
    for axis, begin in zip(map(int, axes), map(int, begins), strict=True):
        first = max(begin + (shape[axis] if begin < 0 else 0), 0)
        widths[axis] = (first, shape[axis] - first - part[axis])
    pads = [one for pair in widths for one in pair]
    others = [op.grad.no_grad(one) for one in call.args[1:]]
    return [op.nn.pad(gradient, pads), *others]


def _global_average(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """Of ``adaptive_avg_pool2d`` to one pixel: an equal share for each pixel."""
    shape, layout = shape_of(call.args[0]), call.attrs.layout
    share = _number(1.0 / (shape[layout.index("H")] * shape[layout.index("W")]))
    share = op.multiply(gradient, share)
    return [op.broadcast_to(share, shape)]


def _layer_norm(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """With n = (x - mean) / sigma and h = gradient * scale:
    dx = (h - mean(h) - n mean(h n)) / sigma (Ba, Kiros and Hinton, "Layer Normalization", 2016).
    """
    x, scale, shift = call.args
    axes = [int(axis) for axis in call.attrs.axes]

    def mean(value: Any) -> Any:
        return op.mean(value, axes, keepdims=True)

    centred = op.subtract(x, mean(x))
    variance = mean(op.multiply(centred, centred))
    inverse = op.rsqrt(op.add(variance, _number(float(call.attrs.epsilon))))
    normal = op.multiply(centred, inverse)
    scaled = op.multiply(gradient, scale)
    rest = op.subtract(scaled, mean(scaled))
    rest = op.subtract(rest, op.multiply(normal, mean(op.multiply(scaled, normal))))
    return [
        op.multiply(rest, inverse),
        op.collapse_sum_to(op.multiply(gradient, normal), shape_of(scale)),
        op.collapse_sum_to(gradient, shape_of(shift)),
    ]


def _none(_made: Any, call: Any, _gradient: Any) -> list[Any]:
    """What was marked as having no gradient passes none on."""
    return [op.grad.no_grad(call.args[0])]


_GRADIENTS: Mapping[str, _Gradient] = {
    "relax.grad.no_grad": _none,
    "relax.clip": _clip,
    "relax.erf": _erf,
    "relax.flatten": _reshaped,
    "relax.matmul": _matmul,
    "relax.maximum": _maximum,
    "relax.minimum": _minimum,
    "relax.nn.adaptive_avg_pool2d": _global_average,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.leakyrelu": _leaky_relu,
    "relax.nn.pad": _pad,
    "relax.nn.relu": _relu,
    "relax.rsqrt": _rsqrt,
    "relax.square": _square,
    "relax.strided_slice": _slice,
    "relax.squeeze": _reshaped,
}


@cache
def register_gradients() -> None:
    """Give them to TVM, once."""
    for name, gradient in _GRADIENTS.items():
        theirs = ir.Op.get(name).get_attr("FPrimalGradient")
        op.register_gradient(name, partial(_own_or_theirs, gradient, theirs), _LEVEL)
    theirs = ir.Op.get("relax.nn.conv2d").get_attr("FPrimalGradient")

    def convolution(made: Any, call: Any, gradient: Any, builder: Any) -> Any:
        found = convolution_gradient(call, gradient, builder)
        return theirs(made, call, gradient, builder) if found is None else found

    op.register_gradient("relax.nn.conv2d", convolution, _LEVEL)


def _own_or_theirs(
    own: _Gradient, theirs: Any, made: Any, call: Any, gradient: Any, builder: Any
) -> Any:
    found = own(made, call, gradient)
    return theirs(made, call, gradient, builder) if found is None else found
