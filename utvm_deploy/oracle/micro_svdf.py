"""SVDF with a state of bytes, by the formula of TFLite Micro.

Its new states are limited to a byte and then get the zero point, in 8 bits. ``tests/oracle`` has
what TFLite Micro itself made of one such operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.requantization import quantize_multiplier


@dataclass(frozen=True)
class Quantized:
    """A tensor: its scale, its zero point and, of a constant, its value."""

    scale: float
    zero_point: int
    data: Array


class MicroSvdf:
    """The operator and its state, which is empty at first."""

    def __init__(
        self,
        x: Quantized,
        features: Quantized,
        times: Quantized,
        bias: Array | None,
        state: Quantized,
        output: Quantized,
    ) -> None:
        self._x, self._features, self._times = x, features, times
        self._bias, self._state, self._output = bias, state, output
        scales = (x.scale, features.scale, times.scale, state.scale, output.scale)
        one, by_features, by_times, kept, made = map(np.float32, scales)
        self._feature = quantize_multiplier(float(one * by_features / kept))
        self._result = quantize_multiplier(float(kept * by_times / made))
        self.restart()

    def restart(self) -> None:
        """Empty the state: its values are its zero point."""
        shape = (self._output.data.shape[0], *self._times.data.shape)
        self._stored: NDArray[np.int64] = np.full(shape, self._state.zero_point, np.int64)

    def step(self, x: Array) -> Array:
        """The output for the next input."""
        values = x.astype(np.int64) - self._x.zero_point
        sums = values @ self._features.data.astype(np.int64).T
        newest = np.clip(scaled(sums, self._feature), -128, 127) + self._state.zero_point
        newest = newest.astype(np.int8).astype(np.int64)
        self._stored = np.concatenate([self._stored[:, :, 1:], newest[:, :, None]], axis=2)
        batch, units = self._output.data.shape
        products = (self._stored - self._state.zero_point) * self._times.data.astype(np.int64)
        totals = products.reshape(batch, units, -1).sum(axis=2)
        if self._bias is not None:
            totals = totals + self._bias
        made = scaled(totals, self._result) + self._output.zero_point
        output: Array = np.clip(made, -128, 127).astype(np.int8)
        return output


def scaled(values: NDArray[np.int64], factor: tuple[int, int]) -> NDArray[np.int64]:
    """Each value as ``rounding.requantized`` makes it of a multiplier and a shift."""
    multiplier, shift = factor
    raised = (values << max(shift, 0)).astype(np.int32).astype(np.int64)
    high = (raised * multiplier + (1 << 30)) >> 31
    right = max(-shift, 0)
    magnitude = (np.abs(high) + (1 << right >> 1)) >> right
    made: NDArray[np.int64] = np.where(high < 0, -magnitude, magnitude)
    return made
