"""The gradients of a convolution, in the layout of our kernels: channels are last.

The gradient of TVM knows its own layout only, and transposes what it makes. Ours are sums of
products, and the update of a weight is a part of such a function. So no memory holds the gradient
of a weight, and nothing is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from utvm_deploy.frontend.relax.operators import shape_of

#: The name of functions that make the gradient of weights. An element is a sum of products, each of
#: another element of the first operand and one of the second.
WEIGHTS = "conv2d_weights"

_FUSED_WITH_WHAT_FOLLOWS = 4  # TVM's number of a function of sums that elementwise ones may follow


def convolution_gradient(call: Any, gradient: Any, builder: Any) -> list[Any] | None:
    """Of ``conv2d`` of images NHWC and weights OHWI; None of another layout.

    Each product of the convolution adds to one element of either gradient (Goodfellow, Bengio and
    Courville, "Deep Learning", 2016, section 9.5).
    """
    a = call.attrs
    if (a.data_layout, a.kernel_layout, a.out_layout) != ("NHWC", "OHWI", "NHWC"):
        return None
    x, weights = call.args
    image, made, shape = shape_of(x), shape_of(gradient), shape_of(weights)
    steps, apart, before = ([*map(int, one)] for one in (a.strides, a.dilation, a.padding))
    of_group = shape[0] // int(a.groups)

    def inside(axis: int, place: Any, size: int) -> list[Any]:
        """That a place is within an image, where it may be outside."""
        is_pixel = shape[1 + axis] == 1 and not before[axis]
        if is_pixel and made[1 + axis] * steps[axis] == image[1 + axis]:
            return []
        return [place >= 0, place < size]

    def of_image(gradient: Any, weights: Any) -> Any:
        """For each pixel, the outputs that it was read for."""
        sums = down, across, channels = _sums_over(*shape[1:3], of_group)

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            output = tirx.floordiv(c, shape[3]) * of_group + channels
            conditions, places = [], []
            for axis, (at, tap) in enumerate(((y, down), (x, across))):
                moved = at + before[axis] - tap * apart[axis]
                if steps[axis] > 1:
                    conditions.append(tirx.floormod(moved, steps[axis]) == 0)
                conditions += inside(axis, moved, made[1 + axis] * steps[axis])
                places.append(tirx.floordiv(moved, steps[axis]))
            value = _if(conditions, gradient[n, places[0], places[1], output])
            weight = weights[output, down, across, tirx.floormod(c, shape[3])]
            return te.sum(value * weight, sums)

        return te.compute(_long(*image), element, name="image")

    def of_weights(gradient: Any, x: Any) -> Any:
        """For each weight, all outputs of its channel."""
        sums = batch, row, column = _sums_over(*made[:3])

        def element(o: Any, down: Any, across: Any, i: Any) -> Any:
            channel = tirx.floordiv(o, of_group) * shape[3] + i
            places = [
                at * steps[axis] + tap * apart[axis] - before[axis]
                for axis, (at, tap) in enumerate(((row, down), (column, across)))
            ]
            conditions = [
                one for axis in (0, 1) for one in inside(axis, places[axis], image[1 + axis])
            ]
            value = _if(conditions, x[batch, places[0], places[1], channel])
            return te.sum(value * gradient[batch, row, column, o], sums)

        return te.compute(_long(*shape), element, name="weights")

    attributes = {"op_pattern": _FUSED_WITH_WHAT_FOLLOWS}
    return [
        builder.call_te(made_by, *given, primfunc_name_hint=name, primfunc_attrs=attributes)
        for made_by, given, name in (
            (of_image, (gradient, weights), "conv2d_image"),
            (of_weights, (gradient, x), WEIGHTS),
        )
    ]


def _sums_over(*extents: int) -> list[Any]:
    return [te.reduce_axis((0, extent)) for extent in _long(*extents)]


def _long(*extents: int) -> list[Any]:
    """Extents as those of TVM's operators are, which may be fused with them."""
    return [tirx.IntImm("int64", extent) for extent in extents]


def _if(conditions: Sequence[Any], value: Any) -> Any:
    return tirx.if_then_else(tirx.all(*conditions), value, 0.0) if conditions else value
