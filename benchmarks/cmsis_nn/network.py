"""A network that grows layer by layer, with random weights and scales that fit its values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from calibration import Calibration
from layer import Layer, ModelWriter
from small_models import svdf

_SIGMOID_SCALE, _SIGMOID_ZERO_POINT = 1 / 256, -128


class Network:
    """A model that grows at one tensor; each method appends to it and returns the new end.

    ``ends_at_six`` is as in ``Calibration``.
    """

    def __init__(self, shape: tuple[int, ...], seed: int = 0, *, ends_at_six: bool = False) -> None:
        self.writer = ModelWriter()
        self.rng = np.random.default_rng(seed or len(shape) + sum(shape))
        self.end = self.writer.input(shape, 0.05, -3)
        self._calibration = Calibration(self.writer, ends_at_six=ends_at_six)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the end."""
        return tuple(self.writer.tensors[self.end].shape)

    def layer(self, kind: str, **options: Any) -> int:
        """One of ``unseen``'s layers."""
        layer = Layer(kind, self.shape, **options)
        self.end = layer.add_to(self.writer, self.rng, self.end)
        if kind.endswith("pool"):
            self._calibration.run()
        else:
            self._calibration.balance()
        return self.end

    def conv(self, outputs: int, size: int = 1, stride: int = 1, activation: str = "RELU6") -> int:
        return self.layer(
            "conv",
            outputs=outputs,
            kernel=(size, size),
            stride=(stride, stride),
            activation=activation,
        )

    def depthwise(self, size: int, stride: int = 1, activation: str = "RELU6") -> int:
        return self.layer(
            "depthwise", kernel=(size, size), stride=(stride, stride), activation=activation
        )

    def pool(self, size: int) -> int:
        return self.layer("max pool", kernel=(size, size), stride=(size, size), padding="VALID")

    def node(
        self,
        kind: str,
        *others: int,
        shape: tuple[int, ...] = (),
        fits: bool = False,
        **options: Any,
    ) -> int:
        """An operator of the end and other tensors; of the end's shape if none is said.

        Its output has the end's quantization or a given one, or one that ``fits`` its values.
        """
        table = options.pop("options", (f"{kind.title().replace('_', '')}Options", {}))
        inputs, scale = [self.end, *others], self._scale
        self.end = self.writer.node(kind, inputs, shape or self.shape, table, **options)
        if fits:
            self._calibration.fit(scale)
        else:
            self._calibration.run()
        return self.end

    def rows(self, outputs: int, activation: str = "NONE") -> int:
        """A dense layer along the last dimension, whatever lies before it."""
        *places, inputs = self.shape
        self.reshape(math.prod(places), inputs)
        self.layer("dense", outputs=outputs, activation=activation)
        return self.reshape(*places, outputs)

    def reshape(self, *shape: int) -> int:
        self.end = self.writer.reshape(self.end, shape)
        self._calibration.run()
        return self.end

    def transpose(self, *order: int) -> int:
        shape = tuple(self.shape[axis] for axis in order)
        numbers = self.writer.constant(np.array(order, np.int32))
        return self.node("TRANSPOSE", numbers, shape=shape)

    def products(self, right: int, *, turned: bool) -> int:
        """The end's matrices times those of another tensor, which may be stored transposed."""
        *_, rows, columns = self.writer.tensors[right].shape
        shape = (*self.shape[:-1], rows if turned else columns)
        options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": turned})
        return self.node("BATCH_MATMUL", right, shape=shape, options=options, fits=True)

    def softmax(self) -> int:
        self.end = self.writer.softmax(self.end)
        self._calibration.run()
        return self.end

    def leaky_relu(self) -> int:
        return self.node("LEAKY_RELU", options=("LeakyReluOptions", {"Alpha": 0.1}), fits=True)

    def nearest(self, times: int) -> int:
        """RESIZE_NEAREST_NEIGHBOR that enlarges both sides."""
        batch, height, width, channels = self.shape
        size = (height * times, width * times)
        numbers = self.writer.constant(np.array(size, np.int32))
        shape = (batch, *size, channels)
        return self.node("RESIZE_NEAREST_NEIGHBOR", numbers, shape=shape)

    def svdf(self, units: int, memory: int, rank: int = 1) -> int:
        scale = self._scale
        self.end = svdf(self.writer, self.end, units, memory, rank)
        self._calibration.fit(scale, is_positive=True)
        return self.end

    def add(self, other: int) -> int:
        scale = self._scale
        self.end = self.writer.add(other, self.end)
        self._calibration.fit(scale)
        return self.end

    def hard_swish(self) -> int:
        return self.node("HARD_SWISH", fits=True)

    def squeeze_excite(self, inside: int) -> int:
        """Scale every channel by what a small network makes of its mean."""
        x = self.end
        self.mean(keep_dims=True)
        self.conv(inside, activation="RELU")
        self.conv(self.writer.tensors[x].shape[3], activation="NONE")
        gate = self.node(
            "LOGISTIC", scale=_SIGMOID_SCALE, zero_point=_SIGMOID_ZERO_POINT, options=None
        )
        self.end = x
        return self.node("MUL", gate, fits=True)

    def up(self, outputs: int) -> int:
        """TRANSPOSE_CONV 2x2 that doubles both sides."""
        return self.layer("transposed", outputs=outputs, kernel=(2, 2), stride=(2, 2))

    def concatenate(self, other: int) -> int:
        """Channels of another tensor behind; both are brought to one scale."""
        zero_point = self.writer.tensors[self.end].zero_points[0]
        other = self.writer.quantize(other, scale=self._scale, zero_point=zero_point)
        self._calibration.run()
        channels = self.shape[3] + self.writer.tensors[other].shape[3]
        options = ("ConcatenationOptions", {"Axis": 3, "FusedActivationFunction": 0})
        return self.node("CONCATENATION", other, shape=(*self.shape[:3], channels), options=options)

    def mean(self, *, keep_dims: bool = False) -> int:
        scale = self._scale
        self.end = self.writer.mean(self.end, [1, 2], keep_dims=keep_dims)
        self._calibration.fit(scale)
        return self.end

    def classify(self, outputs: int) -> bytes:
        """Mean, dense layer, softmax: the end of it."""
        self.mean()
        self.layer("dense", outputs=outputs)
        self.softmax()
        return self.finish(self.end)

    def finish(self, *outputs: int) -> bytes:
        """The model that ends there."""
        self.writer.output(*outputs)
        return self.writer.to_bytes()

    @property
    def _scale(self) -> float:
        return float(self.writer.tensors[self.end].scales[0])
