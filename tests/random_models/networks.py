"""Whole networks as people train them, of random size: what is fused, planned and reused in them.

Each function grows one kind of network on an image; a part that does not fit is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from random_models.draw import Draw, Scope
from random_models.operations import OPERATIONS
from random_models.operations.operation import output_quantization
from random_models.operations.windows import weighted_attributes
from random_models.recipe import Attribute, Ref, Step, Unfit

#: Multiply-accumulates of one layer, so that generic kernels on an emulated core take little time.
MOST_MACS = 400_000
#: Weights of one dense layer: a model must fit beside the running image into a core's RAM.
MOST_WEIGHTS = 100_000


def grow(scope: Scope, x: Ref) -> Ref:
    """A network on the image ``x``, or on a new one where that is none; its last value."""
    draw = scope.draw
    spec = scope.spec(x)
    # A result of CAST is int8 without a scale.
    if len(spec.shape) != 4 or spec.dtype != "int8" or not spec.scales:
        side = draw.between(6, 20)
        x = scope.input((1, side, draw.one((side, draw.between(1, 20))), draw.one((1, 3, 3, 8))))
    return draw.one(_KINDS)(scope, x)


def _channels(draw: Draw) -> int:
    return draw.one((4, 8, 8, 12, 16, 16, 24, 32, 48, draw.between(1, 70)))


def tried(scope: Scope, x: Ref, make: Callable[[], Step | None]) -> Ref:
    """What the step makes, or ``x`` where it does not fit."""
    try:
        step = make()
        return x if step is None else scope.add(step)
    except Unfit:
        return x


def conv(
    scope: Scope,
    x: Ref,
    channels: int,
    window: tuple[int, int] = (3, 3),
    stride: int = 1,
    activation: str = "RELU6",
    quantization: Mapping[str, Attribute] | None = None,
    padding: str = "SAME",
) -> Ref:
    """CONV_2D with few products; ``quantization`` is that of its output."""
    draw, (batch, rows, columns, depth) = scope.draw, scope.spec(x).shape
    products = math.prod(window) * depth
    positions = batch * -(-rows // stride) * -(-columns // stride)
    attributes: dict[str, Attribute] = {
        "channels": max(1, min(channels, MOST_MACS // (products * positions))),
        "groups": 1,
        "window": window,
        "stride": (stride, stride),
        "dilation": (1, 1),
        "padding": padding,
        **weighted_attributes(draw, scope.spec(x).scales[0], products),
        "activation": activation,
        **(quantization or {}),
    }
    return tried(scope, x, lambda: Step("CONV_2D", (x,), attributes, draw.seed()))


def depthwise(scope: Scope, x: Ref, stride: int = 1) -> Ref:
    """DEPTHWISE_CONV_2D that pads."""
    draw, size = scope.draw, scope.draw.one((3, 3, 3, 5))
    attributes: dict[str, Attribute] = {
        "multiplier": 1,
        "window": (size, size),
        "stride": (stride, stride),
        "dilation": (1, 1),
        "padding": "SAME",
        **weighted_attributes(draw, scope.spec(x).scales[0], size * size),
        "activation": "RELU6",
    }
    return tried(scope, x, lambda: Step("DEPTHWISE_CONV_2D", (x,), attributes, draw.seed()))


def _dense(scope: Scope, x: Ref, channels: int, activation: str = "NONE") -> Ref:
    draw, spec = scope.draw, scope.spec(x)
    depth = math.prod(spec.shape[1:])
    attributes: dict[str, Attribute] = {
        "channels": max(1, min(channels, MOST_WEIGHTS // depth)),
        "depth": depth,
        "keep_num_dims": False,
        **weighted_attributes(draw, spec.scales[0], depth),
        "activation": activation,
    }
    return tried(scope, x, lambda: Step("FULLY_CONNECTED", (x,), attributes, draw.seed()))


def any_step(scope: Scope, kind: str, x: Ref) -> Ref:
    """An operator with attributes as they come."""
    return tried(scope, x, lambda: OPERATIONS[kind].propose(scope, x))


def _add(scope: Scope, x: Ref, y: Ref) -> Ref:
    scales = [scope.spec(ref).scales[0] for ref in (x, y)]
    quantization = output_quantization(scope.draw, 1.5 * max(scales))
    activation = scope.draw.one(("NONE", "RELU"))
    return tried(scope, x, lambda: Step("ADD", (x, y), {**quantization, "activation": activation}))


def grow_head(scope: Scope, x: Ref) -> Ref:
    """The mean of an image or a pool over all of it, classes, and their shares."""
    shape = scope.spec(x).shape
    if len(shape) == 4:
        whole = {"window": shape[1:3], "stride": shape[1:3], "padding": "VALID"}
        pool = Step("AVERAGE_POOL_2D", (x,), {**whole, "activation": "NONE"})
        x = tried(scope, x, lambda: pool)
    x = _dense(scope, x, scope.draw.between(2, 20))
    return tried(scope, x, lambda: Step("SOFTMAX", (x,), {"beta": 1.0}))


def _residual(scope: Scope, x: Ref) -> Ref:
    """As ResNet: two convolutions beside a shortcut, which is a convolution where sizes change."""
    draw = scope.draw
    x = conv(scope, x, _channels(draw))
    for _ in range(draw.between(1, 3)):
        stride = draw.one((1, 2))
        channels = scope.spec(x).shape[3] * stride
        inner = conv(scope, x, channels, stride=stride)
        inner = conv(scope, inner, channels, activation="NONE")
        if scope.spec(inner).shape != scope.spec(x).shape:
            channels = scope.spec(inner).shape[3]
            x = conv(scope, x, channels, (1, 1), stride, activation="NONE")
        x = _add(scope, inner, x) if scope.spec(inner).shape == scope.spec(x).shape else inner
    return grow_head(scope, x)


def _separable(scope: Scope, x: Ref) -> Ref:
    """As MobileNet or DS-CNN: depthwise and pointwise in turn, sometimes with shortcuts."""
    draw = scope.draw
    x = conv(scope, x, _channels(draw), draw.one(((3, 3), (10, 4), (5, 5))), 2)
    for _ in range(draw.between(1, 4)):
        before, stride = x, draw.one((1, 1, 2))
        if draw.chance(0.5):
            wide = min(260, scope.spec(x).shape[3] * draw.between(2, 6))
            x = conv(scope, x, wide, (1, 1))
        x = depthwise(scope, x, stride)
        channels = scope.spec(before).shape[3] if draw.chance(0.5) else _channels(draw)
        x = conv(scope, x, channels, (1, 1), activation=draw.one(("RELU6", "NONE")))
        if scope.spec(x).shape == scope.spec(before).shape:
            x = _add(scope, x, before)
    return grow_head(scope, x)


def _attentive(scope: Scope, x: Ref) -> Ref:
    """Squeeze and excitation: each channel times a share that follows from its mean."""
    draw = scope.draw
    x = depthwise(scope, conv(scope, x, _channels(draw), activation="NONE"))
    _, rows, columns, channels = scope.spec(x).shape
    whole = {"window": (rows, columns), "stride": (1, 1), "padding": "VALID", "activation": "NONE"}
    share = tried(scope, x, lambda: Step("AVERAGE_POOL_2D", (x,), whole))
    share = conv(scope, share, max(1, channels // 4), (1, 1), activation="RELU")
    share = conv(scope, share, channels, (1, 1), activation="NONE")
    inner = share
    share = tried(scope, inner, lambda: Step("LOGISTIC", (inner,)))
    scale = scope.spec(x).scales[0] * scope.spec(share).scales[0] * 60
    attributes = {**output_quantization(draw, scale), "activation": "NONE"}
    operands = (x, share) if draw.chance(0.5) else (share, x)
    return grow_head(scope, tried(scope, x, lambda: Step("MUL", operands, attributes)))


def _branching(scope: Scope, x: Ref) -> Ref:
    """As Inception: branches that are joined, then one that is split again."""
    draw = scope.draw
    x = conv(scope, x, _channels(draw))
    branches = [conv(scope, x, _channels(draw), (size, size)) for size in (1, 3, 5)]
    branches.append(any_step(scope, "MAX_POOL_2D", x))
    like = scope.spec(branches[0])
    quantization = {"dtype": "int8", "scale": like.scales[0], "zero_point": like.zero_points[0]}
    equal = [branches[0]]
    for one in branches[1:]:
        if scope.spec(one).shape[:3] == like.shape[:3]:
            equal.append(tried(scope, one, lambda x=one: Step("QUANTIZE", (x,), quantization)))
    joined = Step("CONCATENATION", tuple(equal), {"axis": draw.one((3, -1))})
    x = tried(scope, x, lambda: joined)
    return grow_head(
        scope, any_step(scope, draw.one(("SPLIT", "SPLIT_V", "STRIDED_SLICE", "PAD")), x)
    )


def _encoder(scope: Scope, x: Ref) -> Ref:
    """Down to a few channels and up again, with the first image beside the last one."""
    draw = scope.draw
    skip = conv(scope, x, _channels(draw))
    x = any_step(scope, "MAX_POOL_2D", skip)
    x = conv(scope, x, draw.between(1, 12), stride=draw.between(1, 2))
    kinds = ("TRANSPOSE_CONV", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "DEPTH_TO_SPACE")
    x = any_step(scope, draw.one(kinds), x)
    return conv(scope, x, _channels(draw), activation="NONE")


def _layers(scope: Scope, x: Ref) -> Ref:
    """As an autoencoder: dense layers, narrow in the middle."""
    draw = scope.draw
    widths = [draw.between(8, 260), draw.between(8, 128), draw.between(1, 8), draw.between(8, 128)]
    for width in widths:
        x = _dense(scope, x, width, "RELU")
    return _dense(scope, x, draw.between(8, 260))


def _dilated(scope: Scope, x: Ref) -> Ref:
    """As TensorFlow writes dilated convolutions: on blocks, of images or of rows."""
    draw = scope.draw
    axis = draw.one((0, 0, 1, 2))
    for _ in range(draw.between(1, 2)):
        if axis and len(scope.spec(x).shape) == 4:
            shape = scope.spec(x).shape
            rows = (shape[0], shape[1] * shape[2], shape[3])
            x = tried(scope, x, lambda x=x, rows=rows: Step("RESHAPE", (x,), {"shape": rows}))
        step = OPERATIONS["SPACE_TO_BATCH_ND"].propose(scope, x)
        assert step is not None
        blocks, after = step.attributes["blocks"], step.attributes["after"]
        y = tried(scope, x, lambda step=step: step)
        if axis:
            y = tried(scope, y, lambda y=y: Step("EXPAND_DIMS", (y,), {"axis": axis}))
        size = draw.one((1, 2, 3))
        window = {0: (size, draw.one((1, 2, 3))), 1: (1, size), 2: (size, 1)}[axis]
        y = conv(scope, y, _channels(draw), window, padding="VALID")
        if axis:
            y = tried(scope, y, lambda y=y: Step("SQUEEZE", (y,), {"axes": (axis,)}))
        crops = after if draw.chance(0.5) else (0,) * len(blocks)
        margins = {"blocks": blocks, "before": (0,) * len(blocks), "after": crops}
        x = tried(scope, y, lambda y=y, m=margins: Step("BATCH_TO_SPACE_ND", (y,), m))
    return grow_head(scope, x)


_KINDS = (_residual, _separable, _attentive, _branching, _encoder, _layers, _dilated)
