"""Operators that slide a window over an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tflite_writer import ModelWriter

from random_models.draw import MAX_MACS, Draw, Scope
from random_models.operations.operation import (
    Operation,
    is_image,
    number,
    output_quantization,
    pair,
    quantized,
    real,
    word,
)
from random_models.recipe import Attribute, Ref, Step, values

_PADDINGS = {"SAME": 0, "VALID": 1}
# What a sum of products of random int8 numbers is about, for each root of a product, in 127ths.
_PRODUCT = 74.0 * 74 / 60


def weights_of(step: Step, shape: tuple[int, ...]) -> np.ndarray:
    """Symmetric int8 weights."""
    rng = np.random.default_rng(step.seed)
    return np.maximum(values(rng, word(step, "fill"), shape, "int8"), -127)


def weight_scales(step: Step, channels: int) -> float | list[float]:
    """One scale, or one for each channel around it."""
    if not step.attributes["per_channel"]:
        return real(step, "weight_scale")
    rng = np.random.default_rng([step.seed, 1])
    spread = 2 ** rng.uniform(-3, 1, channels)
    return [float(np.float32(real(step, "weight_scale") * s)) for s in spread]


def bias_of(step: Step, channels: int) -> np.ndarray | None:
    """An int32 bias of the size of the sums, or absent."""
    kind = word(step, "bias")
    rng = np.random.default_rng([step.seed, 2])
    if kind == "none":
        return None
    if kind == "zeros":
        return np.zeros(channels, np.int32)
    most = {"random": 20_000, "large": 2**24}[kind]
    return rng.integers(-most, most, channels).astype(np.int32)


def weighted_attributes(draw: Draw, x_scale: float, depth: int, out: float = 1.0) -> dict:
    """Weights, bias and output quantization for sums of ``depth`` products."""
    weight_scale = float(np.float32(10 ** draw.rng.uniform(-4, 0)))
    natural = x_scale * weight_scale * _PRODUCT * math.sqrt(depth) * out
    return {
        "weight_scale": weight_scale,
        "per_channel": draw.chance(0.6),
        "fill": draw.fill(),
        "bias": draw.one(("random", "random", "random", "zeros", "large")),
        "activation": draw.activation(),
        **output_quantization(draw, natural),
    }


def _window(draw: Draw, image: Sequence[int], padding: str, dilation: Sequence[int]) -> tuple:
    """Rows and columns of a window; a VALID one fits into the image."""
    most = 5 if draw.chance(0.8) else 9
    sizes = []
    for size, d in zip(image, dilation, strict=True):
        room = (size - 1) // d + 1 if padding == "VALID" else most
        sizes.append(1 if draw.chance(0.15) else draw.between(1, min(most, room)))
    return tuple(sizes)


def _geometry(draw: Draw, image: Sequence[int], *, dilates: bool = True) -> dict:
    dilation = (1, 1)
    if draw.pointwise and draw.chance(0.7):
        return {"window": (1, 1), "stride": (1, 1), "dilation": (1, 1), "padding": "SAME"}
    if dilates and draw.chance(0.25):
        dilation = (draw.between(1, 3), draw.between(1, 3))
    stride = draw.one(((1, 1), (1, 1), (2, 2), (2, 1), (draw.between(1, 4), draw.between(1, 4))))
    padding = draw.one(("SAME", "VALID"))
    window = _window(draw, image, padding, dilation)
    if draw.chance(0.08):  # some columns are never read
        stride = (window[0] + draw.between(1, 2), window[1] + draw.between(1, 2))
    return {"window": window, "stride": stride, "dilation": dilation, "padding": padding}


def _positions(image: Sequence[int], geometry: dict) -> int:
    return math.prod(-(-size // s) for size, s in zip(image, geometry["stride"], strict=True))


def _fitted(m: ModelWriter, x: int, step: Step) -> dict:
    """Geometry as keyword arguments; ValueError for a VALID window beyond the image."""
    dilation = pair(step, "dilation") if "dilation" in step.attributes else (1, 1)
    window, image = pair(step, "window"), m.tensors[x].shape[1:3]
    if word(step, "padding") == "VALID":
        for size, w, d in zip(image, window, dilation, strict=True):
            if (w - 1) * d + 1 > size:
                raise ValueError(f"a window of {window} on {image}")
    return {"stride": pair(step, "stride"), "padding": word(step, "padding")}


def _weighted_arguments(step: Step, channels: int) -> dict:
    return {
        "bias": bias_of(step, channels),
        "weight_scale": weight_scales(step, channels),
        "activation": word(step, "activation"),
        **quantized(step),
    }


def _conv(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    depth, rest = divmod(m.tensors[inputs[0]].shape[3], number(step, "groups"))
    channels = number(step, "channels")
    if rest or channels % number(step, "groups"):
        raise ValueError("groups that do not divide the channels")
    weights = weights_of(step, (channels, *pair(step, "window"), depth))
    geometry = {**_fitted(m, inputs[0], step), "dilation": pair(step, "dilation")}
    arguments = _weighted_arguments(step, channels)
    return (m.conv2d(inputs[0], weights, **geometry, **arguments),)


def _propose_conv(scope: Scope, x: Ref) -> Step | None:
    draw, spec = scope.draw, scope.spec(x)
    _, *image, channels = spec.shape
    geometry = _geometry(draw, image)
    groups = 1
    if draw.chance(0.12):
        groups = draw.one([g for g in range(1, channels + 1) if channels % g == 0])
    depth = math.prod(geometry["window"]) * channels // groups
    made = draw.channels()
    most = MAX_MACS // (depth * _positions(image, geometry) * spec.shape[0])
    made = max(1, min(made, most) // groups) * groups
    attributes = {
        "channels": made,
        "groups": groups,
        **geometry,
        **weighted_attributes(draw, spec.scales[0], depth),
    }
    return Step("CONV_2D", (x,), attributes, draw.seed())


def _depthwise(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    channels = m.tensors[inputs[0]].shape[3] * number(step, "multiplier")
    weights = weights_of(step, (1, *pair(step, "window"), channels))
    geometry = {**_fitted(m, inputs[0], step), "dilation": pair(step, "dilation")}
    arguments = _weighted_arguments(step, channels)
    return (m.depthwise_conv2d(inputs[0], weights, **geometry, **arguments),)


def _propose_depthwise(scope: Scope, x: Ref) -> Step | None:
    draw, spec = scope.draw, scope.spec(x)
    image = spec.shape[1:3]
    geometry = _geometry(draw, image)
    attributes = {
        "multiplier": 1 if draw.chance(0.7) else draw.between(2, 4),
        **geometry,
        **weighted_attributes(draw, spec.scales[0], math.prod(geometry["window"])),
    }
    if draw.chance(0.1):
        attributes["bias"] = "none"
    return Step("DEPTHWISE_CONV_2D", (x,), attributes, draw.seed())


def _transpose_conv(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x = m.tensors[inputs[0]]
    batch, *image, depth = x.shape
    window, stride = pair(step, "window"), pair(step, "stride")
    if word(step, "padding") == "SAME":
        sizes = [size * s for size, s in zip(image, stride, strict=True)]
    else:
        sizes = [(n - 1) * s + w for n, s, w in zip(image, stride, window, strict=True)]
    channels = number(step, "channels")
    shape = (batch, *sizes, channels)
    scales = weight_scales(step, channels)
    weights = m.constant(weights_of(step, (channels, *window, depth)), scales)
    operands = [m.constant(np.array(shape, np.int32)), weights, inputs[0]]
    bias = bias_of(step, channels)
    if bias is not None:
        bias_scales = x.scales[0] * np.atleast_1d(np.array(scales, np.float32))
        operands.append(m.constant(bias, list(bias_scales)))
    out = m.tensor(shape, "int8", real(step, "scale"), number(step, "zero_point"))
    options = {"Padding": _PADDINGS[word(step, "padding")], "StrideH": stride[0]}
    m.operator(
        "TRANSPOSE_CONV",
        operands,
        [out],
        ("TransposeConvOptions", {**options, "StrideW": stride[1]}),
    )
    return (out,)


def _propose_transpose_conv(scope: Scope, x: Ref) -> Step | None:
    draw, spec = scope.draw, scope.spec(x)
    window = (draw.between(1, 4), draw.between(1, 4))
    depth = math.prod(window) * spec.shape[3]
    most = MAX_MACS // (depth * math.prod(spec.shape[:3]))
    attributes = {
        "channels": max(1, min(draw.channels(), most)),
        "window": window,
        "stride": (draw.between(1, 3), draw.between(1, 3)),
        "padding": draw.one(("SAME", "VALID")),
        **weighted_attributes(draw, spec.scales[0], depth),
    }
    del attributes["activation"]
    if draw.chance(0.3):
        attributes["bias"] = "none"
    return Step("TRANSPOSE_CONV", (x,), attributes, draw.seed())


def _pool(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    methods = {"AVERAGE_POOL_2D": m.average_pool, "L2_POOL_2D": m.l2_pool}
    method = methods.get(step.kind, m.max_pool)
    options = {**_fitted(m, inputs[0], step), "activation": word(step, "activation")}
    return (method(inputs[0], pair(step, "window"), **options),)


def _proposed_pool(kind: str) -> object:
    def propose(scope: Scope, x: Ref) -> Step | None:
        draw = scope.draw
        geometry: dict[str, Attribute] = _geometry(draw, scope.spec(x).shape[1:3], dilates=False)
        del geometry["dilation"]
        return Step(kind, (x,), {**geometry, "activation": draw.activation()})

    return propose


_RESIZE_OPTIONS = {
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
}


def _resize(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    x, size = m.tensors[inputs[0]], pair(step, "size")
    shape = (x.shape[0], *size, x.shape[3])
    out = m.tensor(shape, x.dtype, x.scales, x.zero_points)
    options = {
        "AlignCorners": bool(step.attributes["align_corners"]),
        "HalfPixelCenters": bool(step.attributes["half_pixel_centers"]),
    }
    operands = [inputs[0], m.constant(np.array(size, np.int32))]
    m.operator(step.kind, operands, [out], (_RESIZE_OPTIONS[step.kind], options))
    return (out,)


def _proposed_resize(kind: str) -> object:
    def propose(scope: Scope, x: Ref) -> Step | None:
        draw = scope.draw
        way = draw.one(((False, False), (True, False), (False, True)))
        size = (draw.extent(20), draw.extent(20))
        if draw.chance(0.4):
            factor = draw.between(2, 3)
            size = tuple(extent * factor for extent in scope.spec(x).shape[1:3])
        attributes = {"size": size, "align_corners": way[0], "half_pixel_centers": way[1]}
        return Step(kind, (x,), attributes)

    return propose


def _blocks(m: ModelWriter, step: Step, inputs: Sequence[int]) -> tuple[int, ...]:
    batch, rows, columns, channels = m.tensors[inputs[0]].shape
    block = number(step, "block")
    if step.kind == "SPACE_TO_DEPTH":
        if rows % block or columns % block:
            raise ValueError("blocks that do not divide the image")
        shape = (batch, rows // block, columns // block, channels * block * block)
    else:
        if channels % (block * block):
            raise ValueError("blocks that do not divide the channels")
        shape = (batch, rows * block, columns * block, channels // (block * block))
    x = m.tensors[inputs[0]]
    out = m.tensor(shape, x.dtype, x.scales, x.zero_points)
    options = "SpaceToDepthOptions" if step.kind == "SPACE_TO_DEPTH" else "DepthToSpaceOptions"
    m.operator(step.kind, inputs, [out], (options, {"BlockSize": block}))
    return (out,)


def _proposed_blocks(kind: str) -> object:
    def propose(scope: Scope, x: Ref) -> Step | None:
        _, rows, columns, channels = scope.spec(x).shape
        if kind == "SPACE_TO_DEPTH":
            fitting = [b for b in (1, 2, 3, 4) if rows % b == 0 and columns % b == 0]
        else:
            fitting = [b for b in (1, 2, 3, 4) if channels % (b * b) == 0]
        return Step(kind, (x,), {"block": fitting[-1] if scope.draw.chance(0.8) else 1})

    return propose


def _blocky(draw: Draw) -> tuple[int, ...]:
    block = draw.between(2, 3)
    rows, columns = draw.between(1, 4), draw.between(1, 4)
    return (1, rows * block, columns * block, draw.between(1, 6) * block * block)


OPERATIONS = {
    "CONV_2D": Operation(_conv, _propose_conv, is_image, Draw.image),
    "DEPTHWISE_CONV_2D": Operation(_depthwise, _propose_depthwise, is_image, Draw.image),
    "TRANSPOSE_CONV": Operation(_transpose_conv, _propose_transpose_conv, is_image, Draw.image),
    **{
        kind: Operation(_pool, _proposed_pool(kind), is_image, Draw.image)
        for kind in ("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D")
    },
    **{
        kind: Operation(_resize, _proposed_resize(kind), is_image, Draw.image)
        for kind in _RESIZE_OPTIONS
    },
    **{
        kind: Operation(_blocks, _proposed_blocks(kind), is_image, _blocky)
        for kind in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
    },
}
