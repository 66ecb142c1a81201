"""Layers of every kind, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from layer import Layer


def _conv(r: random.Random) -> Layer:
    """Any convolution."""
    edge = r.randint(3, 40)
    shape = (1, edge, max(1, edge + r.randint(-4, 4)), r.randint(1, 70))
    kernel = r.randint(1, 7)
    other = kernel if r.random() < 0.7 else r.randint(1, 7)
    strides = ((1, 1),) * 4 + ((2, 2),) * 2 + ((3, 3), (1, 2), (2, 1))
    dilation = r.choice((1,) * 7 + (2, 3))
    stride = (1, 1) if dilation > 1 else r.choice(strides)
    return Layer("conv", shape, r.randint(1, 70), (kernel, other), stride, dilation, _padding(r))


def _usual(r: random.Random) -> Layer:
    """3x3 and 5x5 with channels in multiples of eight."""
    edge = r.choice((4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32))
    kernel, stride = r.choice((3, 3, 5)), r.choice((1, 1, 2))
    shape = (1, edge, edge, 8 * r.randint(1, 12))
    return Layer("conv", shape, 8 * r.randint(1, 12), (kernel, kernel), (stride, stride))


def _first(r: random.Random) -> Layer:
    """Few channels of a large image."""
    edge, kernel, stride = (
        r.choice((28, 32, 48, 64, 80, 96)),
        r.choice((3, 3, 5, 7)),
        r.choice((1, 2)),
    )
    shape = (1, edge, edge, r.choice((1, 1, 2, 3, 3, 4)))
    outputs = r.choice((4, 6, 8, 10, 16, 24, 32))
    return Layer("conv", shape, outputs, (kernel, kernel), (stride, stride), padding=_padding(r))


def _few(r: random.Random) -> Layer:
    """Few channels in and out."""
    edge, kernel = r.randint(16, 60), r.choice((1, 3, 3, 5))
    shape = (1, edge, edge, r.randint(1, 8))
    return Layer("conv", shape, r.randint(1, 8), (kernel, kernel))


def _pointwise(r: random.Random) -> Layer:
    edge, stride = r.randint(1, 32), r.choice((1, 1, 1, 2))
    shape = (1, edge, edge, r.randint(1, 160))
    return Layer("conv", shape, r.randint(1, 160), stride=(stride, stride))


def _tiny(r: random.Random) -> Layer:
    """Many channels of a tiny image."""
    edge, kernel = r.randint(1, 4), r.choice((1, 1, 3))
    shape = (1, edge, edge, 16 * r.randint(6, 32))
    return Layer("conv", shape, 16 * r.randint(2, 24), (kernel, kernel))


def _temporal(r: random.Random) -> Layer:
    """Along one axis."""
    length, taps, stride = r.randint(12, 128), r.randint(2, 13), r.choice((1, 1, 2))
    dilation = r.choice((1, 1, 2)) if stride == 1 else 1
    channels, outputs = r.randint(1, 64), r.randint(1, 64)
    if r.random() < 0.5:
        shape, kernel, strides = (1, 1, length, channels), (1, taps), (1, stride)
    else:
        shape, kernel, strides = (1, length, 1, channels), (taps, 1), (stride, 1)
    return Layer("conv", shape, outputs, kernel, strides, dilation, _padding(r))


def _depthwise(r: random.Random) -> Layer:
    edge, kernel, stride = r.randint(2, 48), r.choice((3, 3, 3, 5, 7, 2, 4)), r.choice((1, 1, 2))
    channels = r.choice((r.randint(1, 70), 8 * r.randint(1, 20)))
    stride = stride if r.random() < 0.9 else 3
    shape = (1, edge, max(1, edge + r.randint(-3, 3)), channels)
    return Layer("depthwise", shape, 0, (kernel, kernel), (stride, stride), padding=_padding(r))


def _depthwise_line(r: random.Random) -> Layer:
    """Depthwise along one axis, dilated or not; or a window that is not a square."""
    length, taps = r.randint(12, 128), r.randint(2, 13)
    channels = r.randint(1, 96)
    dilation = r.choice((1, 1, 1, 2))
    if r.random() < 0.4:
        return Layer("depthwise", (1, 1, length, channels), 0, (1, taps), (1, 1), dilation)
    if r.random() < 0.7:
        return Layer("depthwise", (1, length, 1, channels), 0, (taps, 1), (1, 1), dilation)
    edge, kernel = r.randint(4, 24), (r.randint(1, 5), r.randint(1, 5))
    return Layer("depthwise", (1, edge, edge, channels), 0, kernel, (1, 1), dilation)


def _multiplier(r: random.Random) -> Layer:
    """Depthwise with several outputs for each channel."""
    edge, kernel, stride = r.randint(4, 48), r.choice((3, 3, 5)), r.choice((1, 2))
    channels = r.choice((1, 1, 2, 3, 4, 8, 12, 16))
    outputs = channels * r.choice((2, 3, 4, 8))
    return Layer(
        "depthwise", (1, edge, edge, channels), outputs, (kernel, kernel), (stride, stride)
    )


def _grouped(r: random.Random) -> Layer:
    """Channels in groups: blocks of 3x3, pointwise, or along one axis."""
    groups, kernel = r.choice((2, 2, 3, 4, 4, 8, 16, 32)), r.choice((1, 1, 3, 3, 5))
    channels, outputs = groups * r.randint(2, 24), groups * r.randint(1, 24)
    length, edge = r.randint(12, 128), r.randint(3, 28)
    if r.random() < 0.2:
        return Layer("conv", (1, length, 1, channels), outputs, (kernel, 1), groups=groups)
    stride, dilation = r.choice(((1, 1), (1, 1), (2, 1), (1, 2) if kernel > 1 else (1, 1)))
    kernels, strides = (kernel, kernel), (stride, stride)
    shape = (1, edge, edge, channels)
    return Layer("conv", shape, outputs, kernels, strides, dilation, _padding(r), groups=groups)


def _transposed(r: random.Random) -> Layer:
    """What makes an image larger."""
    edge, kernel, stride = r.randint(2, 24), r.randint(2, 5), r.choice((1, 2, 2, 2, 3, 4))
    shape = (1, edge, edge, r.choice((r.randint(1, 48), 8 * r.randint(1, 8))))
    outputs = r.choice((r.randint(1, 32), 8 * r.randint(1, 4)))
    return Layer("transposed", shape, outputs, (kernel, kernel), (stride, stride), 1, _padding(r))


def _dense(r: random.Random) -> Layer:
    inputs, outputs = round(2 ** r.uniform(2, 11)), round(2 ** r.uniform(0.5, 10))
    return Layer("dense", (r.choice((1, 1, 1, 1, 3)), inputs), outputs)


def _classifier(r: random.Random) -> Layer:
    """Few outputs."""
    return Layer("dense", (1, 8 * r.randint(1, 64)), r.randint(1, 20))


def _pool(r: random.Random) -> Layer:
    edge, kernel = r.randint(2, 32), r.randint(2, 5)
    if r.random() < 0.25:  # the whole image
        edge = kernel = r.randint(2, 12)
    stride = r.choice((kernel, kernel, 1, 2))
    shape = (1, edge, edge, r.choice((r.randint(1, 70), 8 * r.randint(1, 16))))
    kind = r.choice(("max pool", "average pool"))
    return Layer(kind, shape, 0, (kernel, kernel), (stride, stride), padding=_padding(r))


def _int16(r: random.Random) -> Layer:
    """Convolutions of int16 with weights of int8: any window, often an odd number of outputs."""
    edge, channels, outputs = r.randint(3, 32), r.randint(2, 64), r.randint(2, 64)
    kernel, stride = (r.randint(1, 7), r.randint(1, 7)), r.choice((1, 1, 2))
    kernel = kernel if r.random() < 0.5 else (kernel[0], kernel[0])
    outputs = min(63, outputs | 1) if r.random() < 0.5 else outputs
    shape, strides = (1, edge, edge, channels), (stride, stride)
    return Layer("conv", shape, outputs, kernel, strides, 1, _padding(r), dtype="int16")


def _padding(r: random.Random) -> str:
    return r.choice(("SAME", "SAME", "VALID"))


KINDS: dict[str, Callable[[random.Random], Layer]] = {
    "conv": _conv,
    "usual": _usual,
    "first": _first,
    "few": _few,
    "pointwise": _pointwise,
    "tiny": _tiny,
    "temporal": _temporal,
    "depthwise": _depthwise,
    "line": _depthwise_line,
    "multiplier": _multiplier,
    "grouped": _grouped,
    "transposed": _transposed,
    "dense": _dense,
    "classifier": _classifier,
    "pool": _pool,
    "int16": _int16,
}


def layers(kind: str, seed: int, count: int) -> Iterator[Layer]:
    """So many layers of a kind that fit."""
    r = random.Random(f"{kind} {seed}")
    while count:
        layer = KINDS[kind](r)
        if layer.fits:
            count -= 1
            yield layer
