"""A layer of a network as data, and its place in a model of random weights."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from tflite_writer import ModelWriter  # noqa: E402

__all__ = ["ROOT", "Layer", "ModelWriter", "Pair"]

#: Of one layer: so that it takes about a second at most on the emulated board.
MOST_MACS = 2_500_000
LARGEST_BYTES, LARGEST_WEIGHTS = 48 * 1024, 200 * 1024

Pair = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """One layer's shape; ``outputs`` 0: as many as inputs."""

    kind: str
    shape: tuple[int, ...]
    outputs: int = 0
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: int = 1
    padding: str = "SAME"
    activation: str = "NONE"
    groups: int = 1
    dtype: str = "int8"

    @property
    def made(self) -> int:
        """Channels of the output."""
        return self.outputs or self.shape[-1]

    @property
    def output_shape(self) -> tuple[int, ...]:
        if self.kind == "dense":
            return (self.shape[0], self.outputs)
        if self.kind == "transposed":
            places = (
                size * step if self.padding == "SAME" else (size - 1) * step + taps
                for size, taps, step in zip(self.shape[1:3], self.kernel, self.stride, strict=True)
            )
            return (1, *places, self.made)
        sides = []
        for size, taps, step in zip(self.shape[1:3], self.kernel, self.stride, strict=True):
            inside = size if self.padding == "SAME" else size - (taps - 1) * self.dilation
            sides.append(-(-inside // step))
        return (1, *sides, self.made)

    @property
    def weights(self) -> int:
        if self.kind == "dense":
            return self.shape[1] * self.outputs
        if self.kind.endswith("pool"):
            return 0
        inputs = 1 if self.kind == "depthwise" else self.shape[3] // self.groups
        return math.prod(self.kernel) * self.made * inputs

    @property
    def fits(self) -> bool:
        """Whether it is a layer at all, and no larger than wanted."""
        places = math.prod(self.output_shape[:-1])
        return (
            min(self.output_shape) > 0
            and self.bytes <= LARGEST_BYTES
            and self.weights <= LARGEST_WEIGHTS
            and places * self.weights <= MOST_MACS
        )

    @property
    def bytes(self) -> int:
        elements = math.prod(self.shape) + math.prod(self.output_shape)
        return elements * np.dtype(self.dtype).itemsize

    @property
    def label(self) -> str:
        if self.kind == "dense":
            return f"dense {self.shape[0]} x {self.shape[1]} -> {self.outputs}"
        _, height, width, channels = self.shape
        dilation = f" d{self.dilation}" if self.dilation > 1 else ""
        dilation += f" g{self.groups}" if self.groups > 1 else ""
        kind = self.kind if self.dtype == "int8" else f"{self.kind} {self.dtype}"
        return (
            f"{kind} {self.kernel[0]}x{self.kernel[1]} s{self.stride[0]}x{self.stride[1]}"
            f"{dilation} {self.padding.lower()}, {height}x{width}x{channels} -> {self.made}"
        )

    def input_to(self, m: ModelWriter, rng: np.random.Generator) -> int:
        """An input of a model for this layer."""
        if self.dtype == "int8":
            return m.input(self.shape, 0.05, int(rng.integers(-20, 20)))
        m.inputs.append(m.tensor(self.shape, self.dtype, 0.05 / 256, 0))
        return m.inputs[-1]

    def add_to(self, m: ModelWriter, rng: np.random.Generator, x: int) -> int:
        """The layer in a model; quantized so that no output is always at its limit."""
        if self.kind.endswith("pool"):
            pool = m.max_pool if self.kind == "max pool" else m.average_pool
            return pool(x, self.kernel, stride=self.stride, padding=self.padding)
        taps = self.weights // self.made
        shape: tuple[int, ...] = (self.outputs, self.shape[1] if self.kind == "dense" else 0)
        if self.kind in ("conv", "transposed"):
            shape = (self.outputs, *self.kernel, self.shape[3] // self.groups)
        elif self.kind == "depthwise":
            shape = (1, *self.kernel, self.made)
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        is_int8 = self.dtype == "int8"
        bias = rng.integers(-2000, 2000, self.made).astype(np.int32 if is_int8 else np.int64)
        options: dict[str, Any] = {
            "scale": m.tensors[x].scales[0] * 0.01 * 75 * math.sqrt(taps),
            "zero_point": int(rng.integers(-20, 20)) if is_int8 else 0,
            "activation": self.activation,
        }
        if self.kind == "dense":
            return m.fully_connected(x, weights, bias, **options)
        scales = [float(s) for s in rng.uniform(0.005, 0.015, self.made)]
        if self.kind == "transposed":
            return self._add_transposed(m, x, weights, bias, scales, options["scale"])
        options |= {"stride": self.stride, "dilation": self.dilation, "padding": self.padding}
        convolution = m.conv2d if self.kind == "conv" else m.depthwise_conv2d
        return convolution(x, weights, bias, weight_scale=scales, **options)

    def _add_transposed(
        self,
        m: ModelWriter,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray,
        scales: list[float],
        scale: float,
    ) -> int:
        bias_scales = [float(scale) * m.tensors[x].scales[0] for scale in scales]
        inputs = [m.constant(np.array(self.output_shape, np.int32))]
        inputs += [m.constant(weights, scales, axis=0), x, m.constant(bias, bias_scales)]
        fields = {"Padding": int(self.padding == "VALID")}
        fields |= {"StrideH": self.stride[0], "StrideW": self.stride[1]}
        made = m.tensor(self.output_shape, "int8", scale, 5)
        m.operator("TRANSPOSE_CONV", inputs, [made], ("TransposeConvOptions", fields))
        return made
