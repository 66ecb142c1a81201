"""Images of a QDQ model that grow or shrink."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.frontend.qdq.job import Mover, Step
from utvm_deploy.frontend.qdq.operators import Array, Node
from utvm_deploy.frontend.qdq.values import Constant, Quantized, Value, stored_axis

#: How far a scale in float32 may be from the fraction that it stands for.
_ROUNDING = 1e-6


def resize(step: Step) -> Sequence[Value]:
    """Resize and Upsample of images."""
    store, node, shape = step.store, step.node, step.shape
    x = store.last(step.quantized())
    if len(shape) != 4 or shape[:2] != x.shape[:2]:
        raise node.unsupported(f"it makes {shape} of {x.shape}; only images grow and shrink")
    if node.integer("antialias", 0):
        raise node.unsupported("it has antialias; only resizes without it are supported")
    factors = _factors(step, x.shape, shape)
    mode = node.text("mode", "nearest")
    how = node.text("coordinate_transformation_mode", "half_pixel")
    if how == "pytorch_half_pixel" and min(shape[2:]) > 1:
        how = "half_pixel"
    if mode == "nearest":
        return [_nearest(step, x, factors, how)]
    if mode != "linear" or how not in ("half_pixel", "align_corners", "asymmetric"):
        raise node.unsupported(f"its mode is {mode} with {how}; use nearest or linear")
    exact = [out / size for size, out in zip(x.shape[2:], shape[2:], strict=True)]
    if how != "align_corners" and not np.allclose(factors, exact, rtol=_ROUNDING):
        raise node.unsupported(
            f"its scales {factors} make {shape} of {x.shape} only after rounding; give it sizes "
            "instead of scales"
        )
    size = store.numbers(shape[2:], f"{step.name}_size")
    flags = {"AlignCorners": how == "align_corners", "HalfPixelCenters": how == "half_pixel"}
    return [step.moved("RESIZE_BILINEAR", x, size, **flags)]


def _factors(step: Step, before: tuple[int, ...], after: tuple[int, ...]) -> list[float]:
    """By how much rows and columns grow: the stated scales, or what the sizes come to."""
    exact = [out / size for size, out in zip(before[2:], after[2:], strict=True)]
    values = step.arguments
    given = values[min(2, len(values) - 1)] if len(values) > 1 else None
    known = given.real if isinstance(given, Constant) else step.node.attributes.get("scales", ())
    stated = np.asarray(known, np.float64).reshape(-1).tolist()
    if len(stated) not in (2, 4):
        return exact
    # A scale is a float32: 1/3 of it is not that of the sizes to the last bit.
    pairs = zip(exact, stated[-2:], strict=True)
    return [one if math.isclose(one, other, rel_tol=_ROUNDING) else other for one, other in pairs]


def _nearest(step: Step, x: Quantized, factors: Sequence[float], how: str) -> Quantized:
    """Whole factors from the pixel beneath are TFLite's operator; others gather rows, columns."""
    store, node, name, shape = step.store, step.node, step.name, step.shape
    rounding = node.text("nearest_mode", "round_prefer_floor")
    indices = [
        _source_pixels(node, size, out, factor, how, rounding)
        for size, out, factor in zip(x.shape[2:], shape[2:], factors, strict=True)
    ]
    is_whole = all(big % small == 0 for big, small in zip(shape[2:], x.shape[2:], strict=True))
    beneath = [
        np.arange(out) * size // out for size, out in zip(x.shape[2:], shape[2:], strict=True)
    ]
    if is_whole and all(map(np.array_equal, indices, beneath)):
        size = store.numbers(shape[2:], f"{name}_size")
        return step.moved("RESIZE_NEAREST_NEIGHBOR", x, size)
    for place, chosen in zip((2, 3), indices, strict=True):
        if np.array_equal(chosen, np.arange(x.shape[place])):
            continue
        axis = stored_axis(place, 4, True)
        between = (*x.shape[:place], len(chosen), *x.shape[place + 1 :])
        numbers = [x.tensor, store.numbers(chosen, f"{name}_{place}_indices")]
        scale, made = store.scale_of(x), f"{name}_{place}"
        x = store.apply("GATHER", numbers, made, between, scale, is_last=True, Axis=axis)
    return x


def _source_pixels(
    node: Node, size: int, out: int, factor: float, how: str, rounding: str
) -> Array:
    """Which pixel of ``size`` each of ``out`` pixels copies, as ONNX's Resize says."""
    steps = np.arange(out)
    place: Array
    if how == "half_pixel":
        place = _divided(steps + 0.5, size, out, factor) - 0.5
    elif how == "asymmetric":
        place = _divided(steps, size, out, factor)
    elif how == "align_corners":
        place = steps * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        raise node.unsupported(f"its coordinates are those of {how}; use half_pixel or asymmetric")
    rules = {
        "round_prefer_floor": np.ceil(place - 0.5),
        "round_prefer_ceil": np.floor(place + 0.5),
        "floor": np.floor(place),
        "ceil": np.ceil(place),
    }
    if rounding not in rules:
        raise node.unsupported(f"its nearest_mode is {rounding}; use floor or round_prefer_floor")
    return np.clip(rules[rounding], 0, size - 1).astype(np.int32)


def _divided(steps: Array, size: int, out: int, factor: float) -> Array:
    """Places in the source; exact where the factor is that of the sizes."""
    found: Array = steps * size / out if factor == out / size else steps / factor
    return found


RESIZES: Mapping[str, Mover] = dict.fromkeys(("Resize", "Upsample"), resize)
