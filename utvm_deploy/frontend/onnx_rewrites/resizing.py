"""Rewrites of Resize, and of transposed convolutions with a given size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.arrays import Array
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

#: How far a float32 scale may be from the fraction that it stands for.
_WHOLE = 1e-6


def resize(r: Rewriting) -> str | bool:
    """Products with the weights of each axis, for what TVM does not compute right."""
    if r.state.version < 11:
        return False
    shape = r.shape(0)
    rank = len(shape)
    axes = [int(axis) % rank for axis in r.given.get("axes", range(rank))]
    scales = _scales(r, axes)
    if not _is_odd(r, shape, axes, scales):
        return False
    made, output = r.input(0), r.output_shape()
    is_cropped = r.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    region = r.value(1)
    if is_cropped and region is None:
        raise UnsupportedOperator(f"{r.place} crops a computed region; make it a constant")
    is_inside = np.ones([1] * rank, np.bool_)
    for number, axis in enumerate(axes):
        scale = None if scales is None else scales[number]
        if output[axis] == shape[axis] and scale in (None, 1) and not is_cropped:
            continue
        if scale is not None and math.floor(shape[axis] * scale + _WHOLE) != output[axis]:
            raise UnsupportedOperator(
                f"{r.place} keeps a ratio that makes parts of elements; give it fitting sizes"
            )
        ends = region.reshape(2, -1)[:, number] if is_cropped and region is not None else None
        weights, inside = _weights(r, shape[axis], output[axis], scale, ends)
        is_inside = is_inside & inside.reshape([-1 if i == axis else 1 for i in range(rank)])
        if r.text("mode", "nearest") == "nearest":
            made = r.taken(made, weights.argmax(axis=0), axis)
        else:
            made = _product(r, made, weights, axis)
    if not is_inside.all():
        outside = r.constant(r.given.get("extrapolation_value", 0.0), r.dtype(0))
        made = r.add("Where", r.constant(is_inside), made, outside)
    return made


def _scales(r: Rewriting, axes: list[int]) -> list[float] | None:
    """The scales, given or as ONNX computes them to keep ratios; None if sizes are given."""
    scales, sizes = r.value(2), r.value(3)
    if (r.has(2) and scales is None) or (r.has(3) and sizes is None):
        raise UnsupportedOperator(f"{r.place} has computed scales or sizes; make them constants")
    if sizes is None or not sizes.size:
        return None if scales is None else [float(one) for one in scales.reshape(-1)]
    policy = r.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return None
    ratios = [size / r.shape(0)[axis] for size, axis in zip(sizes.tolist(), axes, strict=True)]
    return [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)


def _is_odd(
    r: Rewriting, shape: tuple[int, ...], axes: list[int], scales: list[float] | None
) -> bool:
    """Whether TVM does not resize so."""
    if r.given.get("antialias", 0) or axes != list(range(len(shape))):
        return True
    if r.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return True
    if r.text("coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric":
        return True
    if r.text("mode", "nearest") == "cubic" and r.given.get("exclude_outside", 0):
        return True
    parts = [shape[axis] * scale for axis, scale in zip(axes, scales or (), strict=False)]
    return any(
        one - np.floor(one) > _WHOLE * shape[axis] for one, axis in zip(parts, axes, strict=False)
    )


def _weights(
    r: Rewriting, size: int, made: int, scale: float | None, region: Array | None
) -> tuple[Array, Array]:
    """The weight of each element in each new one, and which are inside, by ONNX's reference."""
    onnx = r.state.onnx
    names = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside")
    given: dict[str, Any] = {
        n: r.given[n] for n in (*names, "mode", "nearest_mode") if n in r.given
    }
    feeds: dict[str, Array] = {"x": np.zeros(size, np.float32)}
    if region is not None:
        feeds["roi"] = region.astype(np.float32)
    if scale is not None:
        feeds["scales"] = np.array([scale], np.float32)
    else:
        feeds["sizes"] = np.array([made], np.int64)
    value = onnx.helper.make_tensor_value_info
    number = onnx.helper.np_dtype_to_tensor_dtype
    inputs = [name if name in feeds else "" for name in ("x", "roi", "scales", "sizes")]
    node = onnx.helper.make_node("Resize", inputs, ["y"], extrapolation_value=2.0, **given)
    values = [value(name, number(data.dtype), data.shape) for name, data in feeds.items()]
    graph = onnx.helper.make_graph([node], "axis", values, [value("y", 1, [made])])
    # Newer versions say the same with more attributes.
    opset = onnx.helper.make_opsetid("", max(r.state.version, 19))
    run = onnx.reference.ReferenceEvaluator(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=r.state.proto.ir_version)
    ).run
    inside = run(None, feeds)[0][:made] != 2.0
    rows = []
    for place in range(size):
        feeds["x"] = (np.arange(size) == place).astype(np.float32)
        rows.append(np.where(inside, run(None, feeds)[0][:made], 0))
    return np.stack(rows).astype(np.float32), inside


def _product(r: Rewriting, x: str, weights: Array, axis: int) -> str:
    """The tensor times a matrix along an axis."""
    rank = len(r.shape_of(x))
    if axis == rank - 1:
        return r.add("MatMul", x, r.constant(weights))
    order = [*(i for i in range(rank) if i != axis), axis]
    turned = r.add("Transpose", x, perm=order)
    made = r.add("MatMul", turned, r.constant(weights))
    return r.add("Transpose", made, perm=[order.index(i) for i in range(rank)])


def transposed_convolution(r: Rewriting) -> str | bool:
    """The padding that makes the given size."""
    if "output_shape" not in r.given:
        return False
    given = dict(r.given)
    sizes = [int(one) for one in given.pop("output_shape")]
    rank = len(r.shape(0)) - 2
    sizes = sizes[-rank:]
    strides, dilations = (given.get(name, [1] * rank) for name in ("strides", "dilations"))
    more = given.get("output_padding", [0] * rank)
    begin, end = [], []
    for i in range(rank):
        reach = (r.shape(1)[2 + i] - 1) * dilations[i] + 1
        total = strides[i] * (r.shape(0)[2 + i] - 1) + more[i] + reach - sizes[i]
        small = total // 2
        is_upper = r.text("auto_pad", "NOTSET") != "SAME_UPPER"
        begin.append(total - small if is_upper else small)
        end.append(small if is_upper else total - small)
    given.pop("auto_pad", None)
    added = [max(0, -one) for one in end]
    if any(one < 0 for one in begin):
        raise UnsupportedOperator(f"{r.place} has a larger output_shape than it can make")
    given["pads"] = [*begin, *(max(0, one) for one in end)]
    given["output_padding"] = [m + a for m, a in zip(more, added, strict=True)]
    return r.add("ConvTranspose", *r.node.input, **given)
