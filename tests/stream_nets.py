"""Random layers over time, for any number of columns: a window's, or a whole recording's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tflite_writer import ModelWriter

FEATURES, CHANNELS = 5, 4


@dataclass
class Net:
    """Layers with random weights; equal seeds give equal layers, for any number of columns."""

    m: ModelWriter
    rng: np.random.Generator

    def conv(
        self, x: int, taps: int, *, wide: int = 1, deep: bool = False, **options: object
    ) -> int:
        channels = self.m.tensors[x].shape[3]
        rows = (1, taps, wide, channels) if deep else (CHANNELS, taps, wide, channels)
        weights = self.rng.integers(-90, 90, rows)
        bias = self.rng.integers(-400, 400, channels if deep else CHANNELS)
        zero_point = int(self.rng.integers(-20, 20))
        write = self.m.depthwise_conv2d if deep else self.m.conv2d
        given = {"weight_scale": 0.01, "scale": 0.15, "zero_point": zero_point, **options}
        return write(x, weights, bias, **given)

    def causal(self, x: int, taps: int, dilation: int) -> int:
        padded = self.m.pad(x, [(0, 0), ((taps - 1) * dilation, 0), (0, 0), (0, 0)])
        return self.conv(padded, taps, dilation=(dilation, 1), padding="VALID", activation="RELU")


def layer(net: Net, x: int) -> int:
    """One more block of a random kind."""
    m, rng = net.m, net.rng
    kind = rng.integers(8)
    taps, dilation = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    if kind == 0:
        return net.conv(x, taps, wide=3, dilation=(dilation, 1))
    if kind == 1:
        return net.conv(x, taps, stride=(2, 1), wide=2)
    if kind == 2:
        return m.add(net.conv(x, taps, deep=True, wide=3), x, scale=0.2, zero_point=3)
    if kind == 3:
        return net.causal(net.causal(x, 2, dilation), 3, 2 * dilation)
    if kind == 4:
        return m.max_pool(x, (taps, 2), stride=(1, 1), padding="SAME")
    if kind == 5:
        return m.add(net.causal(x, 2, dilation), net.conv(x, taps), scale=0.2)
    if kind == 6:  # as PyTorch's users write it: padded at both ends, and cut at the last one
        padded = m.pad(x, [(0, 0), (2 * dilation, 2 * dilation), (0, 0), (0, 0)])
        made = net.conv(padded, 3, dilation=(dilation, 1), padding="VALID")
        extents = [1, m.tensors[x].shape[1], FEATURES, CHANNELS]
        ends = [m.constant(np.array(one, np.int32)) for one in ([0] * 4, extents)]
        return m.node("SLICE", [made, *ends], extents, ("SliceOptions", {}))
    left, right = net.conv(x, 1), net.conv(x, taps)
    shape = (*m.tensors[x].shape[:3], 2 * CHANNELS)
    for one in (left, right):  # CONCATENATION wants equal steps
        m.tensors[one].scales, m.tensors[one].zero_points = (0.15,), (7,)
    joined = m.node("CONCATENATION", [left, right], shape, ("ConcatenationOptions", {"Axis": 3}))
    return net.conv(joined, 1)


def random_net(seed: int, columns: int, layers: int = 4) -> bytes:
    """Layers over time, with an answer for each column."""
    m = ModelWriter()
    net = Net(m, np.random.default_rng(seed))
    x = m.input((1, columns, FEATURES, CHANNELS), scale=0.1, zero_point=int(net.rng.integers(9)))
    for _ in range(layers):
        x = layer(net, x)
    m.output(x)
    return m.to_bytes()
