"""Ten public families of models, small, as Relax modules with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from relax_operators import WHOLE, Case, Given, op
from tvm import relax

#: Families that read images, and the least and largest element of an input.
_LOW, _HIGH = -1.0, 1.0


class Weights:
    """Random constants, scaled so that activations keep their size from layer to layer."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, fan_in: int = 4) -> Any:
        limit = (3 / fan_in) ** 0.5
        return relax.const(self._rng.uniform(-limit, limit, shape).astype(np.float32))

    def positive(self, *shape: int) -> Any:
        return relax.const(self._rng.uniform(0.5, 1.5, shape).astype(np.float32))


def dense(w: Weights, x: Any, inputs: int, outputs: int) -> Any:
    """A dense layer."""
    return op.add(op.matmul(x, w(inputs, outputs, fan_in=inputs)), w(outputs))


def convolution(w: Weights, x: Any, shape: Sequence[int], stride: int = 1, groups: int = 1) -> Any:
    """A convolution that keeps the extents of the image, and its bias."""
    outputs, inputs, rows, columns = shape
    fan_in = inputs * rows * columns
    padding = [(rows - 1) // 2, (columns - 1) // 2, rows // 2, columns // 2]
    weights = w(*shape, fan_in=fan_in)
    made = op.nn.conv2d(x, weights, strides=stride, padding=padding, groups=groups)
    return op.add(made, w(1, outputs, 1, 1))


def normalized(w: Weights, x: Any, channels: int) -> Any:
    """A batch normalization with the statistics of training."""
    scale, variance = w.positive(channels), w.positive(channels)
    made = op.nn.batch_norm(x, scale, w(channels), w(channels), variance, 1, training=False)
    return made[0]


def relu6(x: Any) -> Any:
    """The activation of MobileNet."""
    return op.clip(x, 0, 6)


def classified(w: Weights, x: Any, channels: int, classes: int) -> Any:
    """The mean of each channel, a dense layer and a softmax."""
    means = op.mean(x, axis=[2, 3])
    return op.nn.softmax(dense(w, means, channels, classes), axis=-1)


def mlp(w: Weights, x: Any) -> Any:
    x = op.nn.relu(dense(w, x, 64, 48))
    x = op.nn.relu(dense(w, x, 48, 32))
    return op.nn.softmax(dense(w, x, 32, 10), axis=-1)


def cnn(w: Weights, x: Any) -> Any:
    x = op.nn.max_pool2d(op.nn.relu(convolution(w, x, (8, 3, 3, 3))), (2, 2), (2, 2))
    x = op.nn.max_pool2d(op.nn.relu(convolution(w, x, (16, 8, 3, 3))), (2, 2), (2, 2))
    return op.nn.softmax(dense(w, op.reshape(x, (1, 256)), 256, 10), axis=-1)


def _separable(w: Weights, x: Any, inputs: int, outputs: int, stride: int = 1) -> Any:
    x = convolution(w, x, (inputs, 1, 3, 3), stride, inputs)
    x = relu6(normalized(w, x, inputs))
    return relu6(normalized(w, convolution(w, x, (outputs, inputs, 1, 1)), outputs))


def mobilenet(w: Weights, x: Any) -> Any:
    x = relu6(normalized(w, convolution(w, x, (8, 3, 3, 3), 2), 8))
    x = _separable(w, _separable(w, x, 8, 16), 16, 24, 2)
    return classified(w, x, 24, 4)


def resnet(w: Weights, x: Any) -> Any:
    x = op.nn.relu(normalized(w, convolution(w, x, (8, 3, 3, 3)), 8))
    for _ in range(2):
        inner = op.nn.relu(normalized(w, convolution(w, x, (8, 8, 3, 3)), 8))
        inner = normalized(w, convolution(w, inner, (8, 8, 3, 3)), 8)
        x = op.nn.relu(op.add(x, inner))
    return classified(w, x, 8, 10)


def unet(w: Weights, x: Any) -> Any:
    fine = op.nn.relu(convolution(w, x, (8, 1, 3, 3)))
    coarse = op.nn.max_pool2d(fine, (2, 2), (2, 2))
    coarse = op.nn.relu(convolution(w, coarse, (16, 8, 3, 3)))
    up = op.nn.conv2d_transpose(coarse, w(16, 8, 2, 2, fan_in=16), strides=2)
    both = op.nn.relu(convolution(w, op.concat([fine, up], axis=1), (8, 16, 3, 3)))
    return op.sigmoid(convolution(w, both, (1, 8, 1, 1)))


def tcn(w: Weights, x: Any) -> Any:
    for dilation in (1, 2, 4):
        weights = w(16, 16, 3, fan_in=48)
        padded = op.nn.pad(x, [0, 0, 0, 0, 2 * dilation, 0])
        made = op.nn.conv1d(padded, weights, dilation=dilation)
        x = op.add(x, op.nn.relu(op.add(made, w(1, 16, 1))))
    return dense(w, op.mean(x, axis=[2]), 16, 5)


def gru(w: Weights, x: Any) -> Any:
    size, inputs = 24, 12
    into = [(w(inputs, size, fan_in=inputs), w(size)) for _ in range(3)]
    back = [(w(size, size, fan_in=size), w(size)) for _ in range(3)]
    state = relax.const(np.zeros((1, size), np.float32))
    for step in range(5):
        given = op.reshape(op.strided_slice(x, [1], [step], [step + 1]), (1, inputs))
        (rx, zx, nx), (rh, zh, nh) = (
            [op.add(op.matmul(value, weights), bias) for weights, bias in layers]
            for value, layers in ((given, into), (state, back))
        )
        reset, update = op.sigmoid(op.add(rx, rh)), op.sigmoid(op.add(zx, zh))
        new = op.tanh(op.add(nx, op.multiply(reset, nh)))
        state = op.add(new, op.multiply(update, op.subtract(state, new)))
    return dense(w, state, size, 4)


def transformer(w: Weights, x: Any) -> Any:
    steps, size, heads = 16, 32, 2
    each = size // heads

    def split(y: Any) -> Any:
        return op.permute_dims(op.reshape(y, (1, steps, heads, each)), [0, 2, 1, 3])

    def normal(y: Any) -> Any:
        return op.nn.layer_norm(y, w.positive(size), w(size), -1)

    queries, keys, values = (split(dense(w, x, size, size)) for _ in range(3))
    scores = op.matmul(queries, op.permute_dims(keys, [0, 1, 3, 2]))
    scores = op.multiply(scores, relax.const(np.float32(each**-0.5)))
    mixed = op.matmul(op.nn.softmax(scores, axis=-1), values)
    mixed = op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (1, steps, size))
    x = normal(op.add(x, dense(w, mixed, size, size)))
    inner = op.nn.gelu(dense(w, x, size, 2 * size))
    return normal(op.add(x, dense(w, inner, 2 * size, size)))


def autoencoder(w: Weights, x: Any) -> Any:
    for inputs, outputs in ((64, 32), (32, 8), (8, 32)):
        x = op.nn.relu(dense(w, x, inputs, outputs))
    return dense(w, x, 32, 64)


def kws(w: Weights, x: Any) -> Any:
    x = op.nn.relu(normalized(w, convolution(w, x, (16, 1, 10, 4), 2), 16))
    x = _separable(w, _separable(w, x, 16, 16), 16, 16)
    return classified(w, x, 16, 12)


def _family(make: Callable[[Weights, Any], Any], *shape: int) -> Case:
    given = Given(shape, low=_LOW, high=_HIGH)
    seed = sum(map(ord, make.__name__))
    return Case(make.__name__, (given,), lambda x: make(Weights(seed), x), WHOLE)


FAMILIES: Sequence[Case] = (
    _family(mlp, 1, 64),
    _family(cnn, 1, 3, 16, 16),
    _family(mobilenet, 1, 3, 24, 24),
    _family(resnet, 1, 3, 16, 16),
    _family(unet, 1, 1, 16, 16),
    _family(tcn, 1, 16, 32),
    _family(gru, 1, 5, 12),
    _family(transformer, 1, 16, 32),
    _family(autoencoder, 1, 64),
    _family(kws, 1, 1, 25, 10),
)
