"""Gradients that TVM's Relax has not, or has otherwise than PyTorch.

Each function takes the output's variable, the call, and the gradient of the output, and gives those
of the operands, as ``relax.op.register_gradient`` has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from utvm_deploy.frontend.relax.operators import number_of, scalar, shape_of
from utvm_deploy.frontend.training.convolutions import convolution_gradient

_Gradient: TypeAlias = Callable[[Any, Any, Any], list[Any] | None]

#: Above that of TVM's gradients, so that ours replace them.
_LEVEL = 11


def _where(condition: Any, gradient: Any) -> Any:
    return op.where(condition, gradient, scalar(0.0))


def _between(made: Any, call: Any, gradient: Any) -> list[Any] | None:
    """The gradient where an input is between bounds, which have none; None of two tensors.

    At the bounds 0 and 6 it is 0, as in PyTorch's ReLU and ReLU6. So it looks at the output, which
    the next layer keeps anyway. At other bounds it is 1, as in PyTorch's clamp. To know these, it
    looks at the input.
    """
    numbers = [number_of(one) for one in call.args[1:]]
    if None in numbers:
        return None
    both = {"relax.maximum": (*numbers, None), "relax.minimum": (None, *numbers)}
    low, high = both.get(call.op.name, numbers or (0.0, None))
    for bound, own, is_open, is_closed in (
        (low, 0.0, op.greater, op.greater_equal),
        (high, 6.0, op.less, op.less_equal),
    ):
        if bound is not None and math.isfinite(bound):
            of, inside = (made, is_open) if bound == own else (call.args[0], is_closed)
            gradient = _where(inside(of, scalar(bound)), gradient)
    return [gradient, *map(op.grad.no_grad, call.args[1:])]


def _leaky_relu(made: Any, call: Any, gradient: Any) -> list[Any] | None:
    alpha = float(call.attrs.alpha)
    of = made if alpha > 0 else call.args[0]
    slope = op.multiply(gradient, scalar(alpha))
    return [op.where(op.greater(of, scalar(0.0)), gradient, slope)]


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


def _exp(made: Any, _call: Any, gradient: Any) -> list[Any]:
    """0 where the exponential overflows: a model of finite outputs does not choose it there."""
    return [_where(op.less(made, scalar(math.inf)), op.multiply(gradient, made))]


def _softplus(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d log(1 + exp(b x)) / b / dx = sigmoid(b x)."""
    scaled = op.multiply(call.args[0], scalar(float(call.attrs.beta)))
    return [op.multiply(gradient, op.sigmoid(scaled))]


def _prelu(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """The slopes of negative elements do not train."""
    x, slopes = call.args
    shape = [1] * len(shape_of(x))
    shape[int(call.attrs.axis)] = -1
    sloped = op.multiply(gradient, op.reshape(slopes, shape))
    return [op.where(op.greater(x, scalar(0.0)), gradient, sloped), op.grad.no_grad(slopes)]


def _gauss(x: Any, factor: float) -> Any:
    """exp(-factor x^2)."""
    return op.exp(op.multiply(op.multiply(x, x), scalar(-factor)))


def _erf(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d erf(x) / dx = 2 / sqrt(pi) exp(-x^2)."""
    slope = op.multiply(_gauss(call.args[0], 1.0), scalar(2 / math.sqrt(math.pi)))
    return [op.multiply(gradient, slope)]


def _gelu(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d (x F(x)) / dx = F(x) + x f(x), with the normal distribution F and its density f."""
    (x,) = call.args
    erf = op.erf(op.multiply(x, scalar(math.sqrt(0.5))))
    distribution = op.multiply(op.add(erf, scalar(1.0)), scalar(0.5))
    density = op.multiply(_gauss(x, 0.5), scalar(1 / math.sqrt(2 * math.pi)))
    return [op.multiply(gradient, op.add(distribution, op.multiply(x, density)))]


def _gelu_tanh(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """d (x (1 + t) / 2) / dx = (1 + t) / 2 + x (1 - t^2) u' / 2, with t = tanh(u) and
    u = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    (x,), factor = call.args, math.sqrt(2 / math.pi)
    square = op.multiply(x, x)
    inner = op.add(op.multiply(square, scalar(0.044715)), scalar(1.0))
    tanh = op.tanh(op.multiply(op.multiply(x, inner), scalar(factor)))
    rise = op.multiply(op.add(op.multiply(square, scalar(3 * 0.044715)), scalar(1.0)), x)
    slope = op.subtract(scalar(1.0), op.multiply(tanh, tanh))
    slope = op.multiply(op.multiply(slope, rise), scalar(factor))
    whole = op.multiply(op.add(op.add(tanh, scalar(1.0)), slope), scalar(0.5))
    return [op.multiply(gradient, whole)]


def _rsqrt(made: Any, _call: Any, gradient: Any) -> list[Any]:
    """d x^(-1/2) / dx = -y^3 / 2."""
    cube = op.multiply(op.multiply(made, made), made)
    return [op.multiply(gradient, op.multiply(cube, scalar(-0.5)))]


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


def _tile(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """The sum over the copies."""
    given, whole = shape_of(call.args[0]), shape_of(call)
    shape = (*(1 for _ in whole[len(given) :]), *given)
    pairs = [n for all_, one in zip(whole, shape, strict=True) for n in (all_ // one, one)]
    copies = list(range(0, len(pairs), 2))
    return [op.reshape(op.sum(op.reshape(gradient, pairs), copies), given)]


def _of_sides(function: Callable[[Any, Sequence[int]], Any], call: Any, gradient: Any) -> Any:
    """The gradient of an image that an operator resizes by weighted sums of rows and columns.

    These weights are what the operator makes of images with a single 1. The passes behind compute
    them, because they depend on constants only.
    """
    shape, made, letters = shape_of(call.args[0]), shape_of(call), str(call.attrs.layout).lower()
    for side, other in ("hw", "wh"):
        axis, across, size = letters.index(side), letters.index(other), [2, 2]
        size["hw".index(side)] = made[axis]
        # Both columns are equal: with one alone, TVM would divide by 0.
        image, extents = [1] * 4, [1] * 4
        image[0] = image[axis] = extents[0] = extents[axis] = shape[axis]
        image[across] = 2
        eye = np.eye(shape[axis], dtype=np.float32).reshape(extents)
        resized = function(relax.const(np.broadcast_to(eye, image).copy()), size)
        weights = op.reshape(op.mean(resized, across), (shape[axis], made[axis]))
        order = f"{letters},z{side}->{letters.replace(side, 'z')}"
        gradient = op.einsum((gradient, weights), order)
    return gradient


def _resize(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """Each pixel gets, of those that were made of it, its share."""

    def function(image: Any, size: Sequence[int]) -> Any:
        return ir.Call(call.op, [image, relax.ShapeExpr(size)], call.attrs)

    return [_of_sides(function, call, gradient), op.grad.no_grad(call.args[1])]


def _adaptive_average(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """An equal share for each pixel of a window."""
    shape, layout = shape_of(call.args[0]), str(call.attrs.layout)
    if shape_of(call)[layout.index("H")] == shape_of(call)[layout.index("W")] == 1:
        share = scalar(1.0 / (shape[layout.index("H")] * shape[layout.index("W")]))
        return [op.broadcast_to(op.multiply(gradient, share), shape)]

    def function(image: Any, size: Sequence[int]) -> Any:
        return op.nn.adaptive_avg_pool2d(image, tuple(size), layout)

    return [_of_sides(function, call, gradient)]


def _normalization(x: Any, scaled: Any, axes: Sequence[int], epsilon: float) -> tuple[Any, Any]:
    """dx and n. With n = (x - mean) / sigma and h = gradient * scale, which is ``scaled``:
    dx = (h - mean(h) - n mean(h n)) / sigma (Ba, Kiros and Hinton, "Layer Normalization", 2016).
    """

    def mean(value: Any) -> Any:
        return op.mean(value, list(axes), keepdims=True)

    # The first mean is rounded. The mean of the differences to it is small, and so is its rounding.
    centred = op.subtract(x, mean(x))
    centred = op.subtract(centred, mean(centred))
    variance = mean(op.multiply(centred, centred))
    inverse = op.rsqrt(op.add(variance, scalar(epsilon)))
    normal = op.multiply(centred, inverse)
    rest = op.subtract(scaled, mean(scaled))
    rest = op.subtract(rest, op.multiply(normal, mean(op.multiply(scaled, normal))))
    return op.multiply(rest, inverse), normal


def _layer_norm(_made: Any, call: Any, gradient: Any) -> list[Any]:
    x, scale, shift = call.args
    axes = [int(axis) for axis in call.attrs.axes]
    scaled = op.multiply(gradient, scale)
    image, normal = _normalization(x, scaled, axes, float(call.attrs.epsilon))
    return [
        image,
        op.collapse_sum_to(op.multiply(gradient, normal), shape_of(scale)),
        op.collapse_sum_to(gradient, shape_of(shift)),
    ]


def _group_norm(_made: Any, call: Any, gradient: Any) -> list[Any]:
    """As of a layer normalization of each group (Wu and He, "Group Normalization", 2018)."""
    (x, scale, _), a = call.args, call.attrs
    shape, groups = shape_of(x), int(a.num_groups)
    axis = int(a.channel_axis) % len(shape)
    along = [extent if i == axis else 1 for i, extent in enumerate(shape)]
    others = [i for i in range(len(shape)) if i != axis]
    parts = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    axes = [i for i in range(1, len(parts)) if i != axis]
    scaled = op.reshape(op.multiply(gradient, op.reshape(scale, along)), parts)
    image, normal = _normalization(op.reshape(x, parts), scaled, axes, float(a.epsilon))
    product = op.multiply(gradient, op.reshape(normal, shape))
    return [op.reshape(image, shape), op.sum(product, others), op.sum(gradient, others)]


_GRADIENTS: Mapping[str, _Gradient] = {
    # What was marked as having no gradient passes none on.
    "relax.grad.no_grad": lambda _made, call, _gradient: [op.grad.no_grad(call.args[0])],
    "relax.clip": _between,
    "relax.erf": _erf,
    "relax.exp": _exp,
    "relax.flatten": _reshaped,
    "relax.image.resize2d": _resize,
    "relax.matmul": _matmul,
    "relax.maximum": _between,
    "relax.minimum": _between,
    "relax.nn.adaptive_avg_pool2d": _adaptive_average,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.leakyrelu": _leaky_relu,
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.nn.relu": _between,
    "relax.nn.softplus": _softplus,
    "relax.rsqrt": _rsqrt,
    "relax.square": lambda _, call, g: [op.multiply(g, op.multiply(call.args[0], scalar(2.0)))],
    "relax.strided_slice": _slice,
    "relax.squeeze": _reshaped,
    "relax.tile": _tile,
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
