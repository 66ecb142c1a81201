"""Kernels that take the place of TVM's, where those are wrong.

**Group and instance normalization.** TVM's take the mean of the squares minus the square of the
mean. In float32 that loses all digits where the mean is large against the deviation: the variance
may even be below zero. These take the differences to the mean.

**The gradient of max pooling.** TVM's reads behind the last window where windows overlap, and may
find there that a pixel was the largest of a window which does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import te, tirx


def group_norm(builder: Any, call: Any) -> Any:
    """``relax.nn.group_norm``."""
    return _normalized(builder, call, int(call.attrs.num_groups))


def instance_norm(builder: Any, call: Any) -> Any:
    """``relax.nn.instance_norm``: each channel is a group."""
    return _normalized(builder, call, int(call.args[1].ty.shape[0]))


def _normalized(builder: Any, call: Any, groups: int) -> Any:
    def make(x: Any, scale: Any, shift: Any) -> Any:
        shape = [int(extent) for extent in x.shape]
        channel = int(call.attrs.channel_axis) % len(shape)
        axes = [int(axis) % len(shape) for axis in call.attrs.axes]
        kept = [i for i in range(len(shape)) if i != channel and i not in axes]
        count = math.prod(shape[i] for i in (*axes, channel)) // groups
        width, zero = (tirx.const(n, "int64") for n in (shape[channel] // groups, 0))
        dtype = "float32" if x.dtype == "float16" else x.dtype
        # What is one number for a group has the axes that are kept, and the group.
        extents = [*(x.shape[i] for i in kept), tirx.const(groups, "int64")]

        def value(group: Sequence[Any], inside: Mapping[int, Any]) -> Any:
            place = {**inside, **dict(zip(kept, group, strict=False))}
            place[channel] = group[-1] * width + inside[channel]
            return x(*(place[i] for i in range(len(shape)))).astype(dtype)

        def total(name: str, element: Callable[..., Any]) -> Any:
            inside = {
                i: te.reduce_axis((0, width if i == channel else x.shape[i]))
                for i in sorted((*axes, channel))
            }

            def of(*group: Any) -> Any:
                return te.sum(element(value(group, inside), *group), axis=list(inside.values()))

            return te.compute(extents, of, name=name)

        def first(*group: Any) -> Any:
            return value(group, dict.fromkeys((*axes, channel), zero))

        # A sum of differences to one of them is small, and so is its rounding.
        offsets = total("offsets", lambda one, *group: one - first(*group))
        means = te.compute(
            extents, lambda *group: first(*group) + offsets(*group) / count, name="means"
        )

        def squared(one: Any, *group: Any) -> Any:
            return (one - means(*group)) * (one - means(*group))

        squares, epsilon = total("squares", squared), tirx.const(call.attrs.epsilon, dtype)
        inverses = te.compute(
            extents, lambda *group: tirx.rsqrt(squares(*group) / count + epsilon), name="inverses"
        )

        def normal(*place: Any) -> Any:
            c = place[channel]
            group = (*(place[i] for i in kept), tirx.floordiv(c, width))
            found = (x(*place).astype(dtype) - means(*group)) * inverses(*group)
            return (found * scale(c).astype(dtype) + shift(c).astype(dtype)).astype(x.dtype)

        return te.compute(x.shape, normal, name="normalized")

    name = call.op.name.rpartition(".")[2]
    return builder.call_te(make, *call.args, primfunc_name_hint=name)


def max_pool_gradient(builder: Any, call: Any) -> Any:
    """``relax.grad.max_pool2d_backward``: of equal pixels of a window, the first one gets all."""
    a = call.attrs
    sides = [str(a.layout).index(letter) for letter in "HW"]
    sizes, strides, steps = (
        [tirx.const(int(n), "int64") for n in of] for of in (a.pool_size, a.strides, a.dilation)
    )
    before = [tirx.const(int(n), "int64") for n in a.padding[:2]]

    def make(gradient: Any, image: Any) -> Any:
        lowest = tirx.min_value(image.dtype)

        def inside() -> list[Any]:
            return [te.reduce_axis((0, size)) for size in sizes]

        def pixel(window: Sequence[Any], at: Sequence[Any]) -> Any:
            place, bounds = list(window), []
            for side, k, stride, step, start in zip(sides, at, strides, steps, before, strict=True):
                place[side] = window[side] * stride + k * step - start
                bounds += [place[side] >= 0, place[side] < image.shape[side]]
            return tirx.if_then_else(tirx.all(*bounds), image(*place), lowest)

        def largest(*window: Any) -> Any:
            at = inside()
            return te.max(pixel(window, at), axis=at)

        most = te.compute(gradient.shape, largest, name="largest")

        def first(*window: Any) -> Any:
            at = inside()
            found = tirx.Select(
                pixel(window, at) == most(*window), at[0] * sizes[1] + at[1], sizes[0] * sizes[1]
            )
            return te.min(found, axis=at)

        chosen = te.compute(gradient.shape, first, name="chosen")

        def of(*place: Any) -> Any:
            at, window, bounds = inside(), list(place), []
            for side, k, stride, step, start in zip(sides, at, strides, steps, before, strict=True):
                along = place[side] + start - k * step
                window[side] = tirx.floordiv(along, stride)
                bounds += [along >= 0, tirx.floormod(along, stride) == 0]
                bounds.append(window[side] < gradient.shape[side])
            is_chosen = tirx.if_then_else(
                tirx.all(*bounds), chosen(*window) == at[0] * sizes[1] + at[1], False
            )
            share = tirx.if_then_else(is_chosen, gradient(*window), tirx.const(0, gradient.dtype))
            return te.sum(share, axis=at)

        return te.compute(image.shape, of, name="gradient")

    return builder.call_te(make, *call.args, primfunc_name_hint="max_pool2d_backward")


CORRECTED_KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.grad.max_pool2d_backward": max_pool_gradient,
    "relax.nn.group_norm": group_norm,
    "relax.nn.instance_norm": instance_norm,
}
