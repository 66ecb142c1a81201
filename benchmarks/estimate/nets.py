"""Random quantized networks of the kinds that architecture searches try, with calibrated scales.

Weights, biases and scales are drawn so that every channel varies and is read: the compiler drops
channels that do not, and then a net is smaller than its shapes say.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import ndtri

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from small_models import lstm  # noqa: E402
from tflite_writer import ModelWriter  # noqa: E402

#: Multiply-accumulates and weights of a layer, at most.
MOST_MACS, MOST_WEIGHTS = 4_000_000, 120_000
#: The standard deviation of activations, in steps of their scale, and of weights: of a normal
#: distribution that is cut at 127.
ACTIVATION_STEPS, WEIGHT_STEPS = 45.0, 42.0
NORMAL = np.rint(WEIGHT_STEPS * ndtri((np.arange(255) + 0.5) / 255)).astype(np.int8)


class Net:
    """A net under construction; ``x`` is a tensor's number in the file."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.writer = ModelWriter("utvm_deploy random net")
        #: Steps of an activation of int16 in one of int8, and of weights of int8 in one of int4.
        self.finer, self.coarser = 1, 1
        #: The share of weights that are zeros, and how many of them are side by side.
        self.zeros, self.run = 0.0, 1

    def one(self, *choices: int) -> int:
        """One of the numbers."""
        return int(choices[self.rng.integers(len(choices))])

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, max(low, high), endpoint=True))

    def chance(self, share: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < share)

    def channels(self, most: int = 96) -> int:
        """Mostly multiples of eight, sometimes anything."""
        if self.chance(0.2):
            return self.between(5, most)
        return (
            4 * self.between(1, most // 4) if self.chance(0.3) else 8 * self.between(1, most // 8)
        )

    def shape(self, x: int) -> tuple[int, ...]:
        """Of a tensor."""
        return self.writer.tensors[x].shape

    def image(self) -> int:
        """The input, sometimes of float32."""
        rows = self.one(8, 12, 16, 20, 24, 28, 32, 48, 64, 96, self.between(8, 64))
        columns = rows if self.chance(0.7) else self.between(4, 49)
        return self.input((1, rows, columns, self.one(1, 1, 3, 3, 3, self.between(1, 12))))

    def input(self, shape: tuple[int, ...]) -> int:
        """An input of any shape."""
        if self.finer > 1:
            made = self.writer.input(shape, scale=1 / 64 / self.finer)
            self.writer.tensors[made].dtype = "int16"
            return made
        if self.chance(0.2):
            return self.writer.quantize(self.writer.float_input(shape), scale=1 / 64, zero_point=-3)
        return self.writer.input(shape, scale=1 / 64, zero_point=self.between(-128, 0))

    def weights(self, x: int, shape: tuple[int, ...], axis: int, activation: str) -> dict:
        """Arguments of a layer: weights, bias and scales."""
        channels = shape[axis]
        depth = math.prod(shape) / channels
        scale = (6 / 255 if activation != "NONE" else 1 / 24) / self.finer
        kept = math.sqrt(1 - self.zeros)
        natural = ACTIVATION_STEPS * self.finer * WEIGHT_STEPS * kept * math.sqrt(depth)
        wide = np.int64 if self.finer > 1 else np.int32
        each = ACTIVATION_STEPS * self.finer * scale / (self.writer.tensors[x].scales[0] * natural)
        spread = 2 ** self.rng.uniform(-0.7, 0.7, channels if self.chance(0.85) else 1)
        return {
            "weights": self._values(shape),
            "bias": self.rng.normal(0, 0.3 * natural / self.coarser, channels).astype(wide),
            "weight_scale": [float(np.float32(each * self.coarser * one)) for one in spread],
            "activation": activation,
            "scale": float(np.float32(scale)),
            "zero_point": self._zero_point(activation),
        }

    def _zero_point(self, activation: str) -> int:
        if self.finer > 1:
            return 0
        return -128 if activation != "NONE" else self.between(-20, 20)

    def _values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Weights, some of them zeros."""
        made = NORMAL[self.rng.integers(0, len(NORMAL), shape)]
        outputs, runs = shape[0], math.prod(shape[1:]) // self.run
        is_pointwise = math.prod(shape) == outputs * shape[-1]
        if self.zeros and is_pointwise and outputs > 1 and shape[-1] % self.run == 0:
            is_zero = self.rng.random((outputs, runs)) < self.zeros
            # No channel may go: each output reads something, and each input is read.
            longest = np.arange(max(outputs, runs))
            is_zero[longest % outputs, longest % runs] = False
            made.reshape(outputs, runs, self.run)[is_zero] = 0
        return made

    def fitting(self, x: int, channels: int, taps: int, stride: int) -> int:
        """So many channels that the layer has not too many products and weights."""
        _, rows, columns, depth = self.shape(x)
        places = -(-rows // stride) * -(-columns // stride)
        most = min(MOST_MACS // (taps * depth * places), MOST_WEIGHTS // (taps * depth))
        return max(1, min(channels, most))

    def stride(self, x: int, stride: int) -> int:
        """A stride that leaves an image of some pixels."""
        return 1 if min(self.shape(x)[1:3]) < 6 else stride

    def conv(self, x: int, channels: int, size: int = 3, stride: int = 1, **more: object) -> int:
        """CONV_2D."""
        _, rows, columns, depth = self.shape(x)
        stride = self.stride(x, stride)
        window = (min(size, rows), min(size, columns))
        dilation = more.pop("dilation", 1)
        activation = more.pop("activation", "RELU6")
        channels = self.fitting(x, channels, math.prod(window), stride)
        shape = (channels, *window, depth)
        arguments = self.weights(x, shape, 0, str(activation))
        is_same = min(rows, columns) < 2 * size or self.chance(0.85) or dilation != 1
        padding = "SAME" if more.pop("is_same", is_same) else "VALID"
        return self.writer.conv2d(x, **arguments, stride=stride, padding=padding, dilation=dilation)

    def depthwise(self, x: int, size: int = 3, stride: int = 1) -> int:
        """DEPTHWISE_CONV_2D, where the image has three rows and columns: of a channel of one weight
        and a ReLU, often nothing is left.
        """
        _, rows, columns, depth = self.shape(x)
        if min(rows, columns) < 3:
            return x
        stride = self.stride(x, stride)
        shape = (1, min(size, rows), min(size, columns), depth)
        arguments = self.weights(x, shape, 3, "RELU6")
        return self.writer.depthwise_conv2d(x, **arguments, stride=stride)

    def dense(self, x: int, channels: int, activation: str = "NONE") -> int:
        """FULLY_CONNECTED."""
        depth = math.prod(self.shape(x)[1:])
        channels = max(2, min(channels, MOST_WEIGHTS // depth))
        return self.writer.fully_connected(x, **self.weights(x, (channels, depth), 0, activation))

    def add(self, x: int, y: int) -> int:
        """ADD."""
        activation = "RELU" if self.chance(0.4) else "NONE"
        zero_point = -128 if activation == "RELU" else self.between(-20, 20)
        return self.writer.add(x, y, activation=activation, scale=1 / 16, zero_point=zero_point)

    def mul(self, x: int, y: int) -> int:
        """MUL with broadcasting."""
        options = ("MulOptions", {"FusedActivationFunction": 0})
        return self.writer.node("MUL", [x, y], self.shape(x), options, scale=1 / 24, zero_point=-9)

    def pool(self, x: int, size: int = 2, stride: int = 2) -> int:
        """A pool, if the image is large enough for it."""
        if min(self.shape(x)[1:3]) < 2 * size:
            return x
        method = self.writer.max_pool if self.chance(0.6) else self.writer.average_pool
        return method(x, size, stride=stride, padding="SAME" if self.chance(0.3) else "VALID")

    def alone(self, x: int) -> int:
        """An activation that no layer computes with its own."""
        kinds = ("HARD_SWISH", "HARD_SWISH", "LEAKY_RELU", "TANH")
        kind = kinds[self.rng.integers(len(kinds))]
        options = {
            "HARD_SWISH": ("HardSwishOptions", {}),
            "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.1}),
        }.get(kind)
        scale = {"scale": 1 / 128, "zero_point": 0} if kind == "TANH" else {"scale": 1 / 40}
        return self.writer.node(kind, [x], self.shape(x), options, **scale)

    def joined(self, *parts: int) -> int:
        """CONCATENATION of channels that have one scale."""
        like = self.writer.tensors[parts[0]]
        first, *others = parts
        same = [first]
        for one in others:
            spec = self.writer.tensors[one]
            if (spec.scales, spec.zero_points) != (like.scales, like.zero_points):
                one = self.writer.quantize(
                    one, scale=like.scales[0], zero_point=like.zero_points[0]
                )
            same.append(one)
        shape = (*like.shape[:3], sum(self.shape(one)[3] for one in same))
        options = ("ConcatenationOptions", {"Axis": 3})
        return self.writer.node("CONCATENATION", same, shape, options)

    def head(self, x: int) -> int:
        """Classes of an image."""
        _, rows, columns, depth = self.shape(x)
        if self.chance(0.4):
            x = self.writer.mean(x, (1, 2), keep_dims=self.chance(0.5), scale=1 / 30)
        elif self.chance(0.7) or rows * columns * depth > 6000:
            x = self.writer.average_pool(x, (rows, columns))
        if self.chance(0.3):
            x = self.dense(x, self.channels(64), "RELU")
        x = self.dense(x, self.between(2, 20))
        return self.writer.softmax(x) if self.chance(0.7) else x


def _plain(net: Net) -> int:
    x, channels = net.image(), net.channels(32)
    for _ in range(net.between(1, 5)):
        size = net.one(3, 3, 3, 5, 1, 7)
        alone = net.chance(0.15)
        x = net.conv(x, channels, size, net.one(1, 1, 2), activation="NONE" if alone else "RELU")
        x = net.alone(x) if alone else x
        if net.chance(0.5):
            x = net.pool(x, net.one(2, 2, 3), net.one(2, 2, 2, 1))
        channels = min(128, channels * net.one(1, 2, 2))
    return net.head(x)


def _separable(net: Net) -> int:
    x = net.image()
    x = net.conv(x, net.channels(32), net.one(3, 3, 5), net.one(1, 2, 2))
    for _ in range(net.between(2, 9)):
        x = net.depthwise(x, net.one(3, 3, 3, 5), net.one(1, 1, 2))
        x = net.conv(x, net.channels(160), 1)
    return net.head(x)


def _inverted(net: Net) -> int:
    x = net.conv(net.image(), net.channels(24), 3, 2)
    is_hard = net.chance(0.25)
    for _ in range(net.between(2, 7)):
        before, stride = x, net.one(1, 1, 2)
        activation = "NONE" if is_hard else "RELU6"
        x = net.conv(x, net.shape(x)[3] * net.one(2, 3, 4, 6), 1, activation=activation)
        x = net.alone(x) if is_hard else x
        x = net.depthwise(x, net.one(3, 3, 5, 7), stride)
        if net.chance(0.25):
            x = _excited(net, x)
        same = stride == 1 and net.chance(0.7)
        channels = net.shape(before)[3] if same else net.channels(64)
        x = net.conv(x, channels, 1, activation="NONE")
        if net.shape(x) == net.shape(before):
            x = net.add(x, before)
    return net.head(x)


def _excited(net: Net, x: int) -> int:
    channels = net.shape(x)[3]
    share = net.writer.mean(x, (1, 2), keep_dims=True, scale=1 / 30)
    share = net.conv(share, max(2, channels // 4), 1, activation="RELU")
    share = net.conv(share, channels, 1, activation="NONE")
    share = net.writer.node("LOGISTIC", [share], net.shape(share), scale=1 / 256, zero_point=-128)
    return net.mul(x, share)


def _residual(net: Net) -> int:
    x = net.conv(net.image(), net.channels(24), 3, net.one(1, 2))
    for _ in range(net.between(1, 4)):
        stride = net.one(1, 2)
        channels = min(96, net.shape(x)[3] * stride)
        inner = net.conv(x, channels, 3, stride, is_same=True)
        inner = net.conv(inner, channels, 3, activation="NONE", is_same=True)
        if net.shape(inner) != net.shape(x):
            x = net.conv(x, net.shape(inner)[3], 1, stride, activation="NONE", is_same=True)
        x = net.add(inner, x) if net.shape(inner) == net.shape(x) else inner
    return net.head(x)


def _branching(net: Net) -> int:
    x = net.conv(net.image(), net.channels(24), 3, 2)
    for _ in range(net.between(1, 3)):
        x = net.conv(x, net.channels(32), 1)
        sizes = (1, 3, 5)[: net.between(2, 3)]
        x = net.joined(*(net.conv(x, net.channels(32), size, is_same=True) for size in sizes))
        x = net.pool(x) if net.chance(0.6) else x
    return net.head(x)


def _rows(net: Net) -> int:
    x = net.input((1, net.between(16, 256), 1, net.one(1, 3, 6, 8, 16, 40)))
    for layer in range(net.between(2, 6)):
        size, channels = net.one(3, 5, 9), net.channels(64)
        rows, depth = net.shape(x)[1], net.shape(x)[3]
        size = min(size, rows)
        shape = (net.fitting(x, channels, size, 1), size, 1, depth)
        dilation = (2**layer, 1) if net.chance(0.3) and size * 2**layer < rows else 1
        arguments = net.weights(x, shape, 0, "RELU")
        stride = 1 if dilation != 1 else (net.one(1, 1, 2), 1)
        x = net.writer.conv2d(x, **arguments, stride=stride, dilation=dilation)
        if net.chance(0.3) and net.shape(x)[1] >= 2:
            x = net.writer.max_pool(x, (2, 1))
    return net.head(x)


def _layers(net: Net) -> int:
    x = net.input((1, net.one(16, 40, 64, 196, 640, net.between(8, 800))))
    for _ in range(net.between(1, 7)):
        x = net.dense(x, net.one(8, 16, 32, 64, 128, net.between(4, 300)), "RELU")
    return net.dense(x, net.between(2, 300))


def _encoder(net: Net) -> int:
    x = net.conv(net.image(), net.channels(24), 3)
    skip = x
    x = net.conv(net.pool(x), net.channels(48), 3)
    x = _enlarged(net, x, net.shape(skip)[1:3])
    x = net.joined(skip, x)
    return net.conv(x, net.channels(24), 3, activation="NONE")


def _enlarged(net: Net, x: int, size: tuple[int, ...]) -> int:
    """The image with so many rows and columns, by a resize or by TRANSPOSE_CONV."""
    _, rows, columns, depth = net.shape(x)
    if net.chance(0.4) and size == (2 * rows, 2 * columns):
        arguments = net.weights(x, (min(32, depth), 3, 3, depth), 0, "NONE")
        weights = net.writer.constant(arguments["weights"], arguments["weight_scale"])
        scales = np.array(arguments["weight_scale"], np.float32) * net.writer.tensors[x].scales[0]
        shape = (1, *size, min(32, depth))
        bias = net.writer.constant(arguments["bias"], list(map(float, scales)))
        made = net.writer.constant(np.array(shape, np.int32))
        options = ("TransposeConvOptions", {"Padding": 0, "StrideH": 2, "StrideW": 2})
        out = net.writer.tensor(shape, "int8", arguments["scale"], arguments["zero_point"])
        net.writer.operator("TRANSPOSE_CONV", [made, weights, x, bias], [out], options)
        return out
    kind, name = ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")
    if net.chance(0.3):
        kind, name = ("RESIZE_BILINEAR", "ResizeBilinearOptions")
    made = net.writer.constant(np.array(size, np.int32))
    options = (name, {"AlignCorners": False, "HalfPixelCenters": net.chance(0.5)})
    return net.writer.node(kind, [x, made], (1, *size, depth), options)


def _narrow(net: Net) -> int:
    """Any of these with weights of int4."""
    net.coarser = 16
    return OF_INT8[net.between(0, len(OF_INT8) - 1)](net)


def _wide(net: Net) -> int:
    """Activations of int16."""
    net.finer = 256
    x = net.conv(net.image(), net.channels(24), net.one(1, 3, 3), net.one(1, 2), activation="NONE")
    for _ in range(net.between(1, 4)):
        if net.chance(0.5):
            x = net.depthwise(x, 3, net.one(1, 1, 2))
        x = net.conv(x, net.channels(48), net.one(1, 1, 3), net.one(1, 1, 2), activation="NONE")
        if net.chance(0.4):
            kind = "TANH" if net.chance(0.5) else "LOGISTIC"
            x = net.writer.node(kind, [x], net.shape(x), scale=2**-15)
    return net.dense(x, net.between(2, 40))


def _recurrent(net: Net) -> int:
    net.finer = net.one(1, 256)
    x = net.input((1, net.between(4, 40), net.one(8, 10, 16, 28, 40, net.between(4, 64))))
    for _ in range(net.one(1, 1, 2)):
        x = lstm(net.writer, x, net.one(8, 16, 20, 32, 64), seed=net.between(0, 999))
    return net.dense(x, net.between(2, 40))


def _pruned(net: Net) -> int:
    net.zeros, net.run = float(net.rng.uniform(0.65, 0.95)), net.one(1, 4, 4)
    return _layers(net) if net.chance(0.6) else _separable(net)


OF_INT8: tuple[Callable[[Net], int], ...] = (
    *(_plain, _separable, _inverted, _residual, _separable, _inverted),
    *(_branching, _rows, _layers, _encoder),
)
KINDS = (*OF_INT8, _narrow, _wide, _recurrent, _pruned)


def write(seed: int, path: Path) -> Path:
    """The net of a seed, as a file."""
    net = Net(seed)
    last = KINDS[seed % len(KINDS)](net)
    if net.chance(0.15):
        last = net.writer.dequantize(last)
    net.writer.output(last)
    if net.coarser > 1:
        net.writer.pack_weights()
    return net.writer.save(path)
