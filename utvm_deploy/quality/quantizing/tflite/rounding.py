"""Rounds weights so that the other weights of a channel make up for what each is off by.

The nearest step is best for a weight alone. But what counts is the sum of its channel's products,
and the inputs of these correlate, as the neighbors of a picture do. So the weights are rounded one
after the other. What each is off by is taken from those that follow, as far as their inputs
correlate on the samples. The formula is that of GPTQ: Frantar et al., "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers" (2023), section 3.3. The largest inputs come
first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.tflite.layers import Inputs, Pair, Statistics, pairs_of
from utvm_deploy.quality.quantizing.tflite.narrow import MOST_STEP

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any

_MOST_WEIGHT = 127
#: Added to each input's mean square, as a part of the mean of these. The paper has the same.
_DAMPING = 0.01
#: Fewer rows of inputs than this for each column say too little about other inputs.
_LEAST_ROWS = 4


class Rounding:
    """Rounds the weights of models that are made from the same float model.

    Equal scales give equal weights, so these are kept.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._done: dict[tuple[str, bytes], Array] = {}

    def run(self, model: Any, narrowed: Collection[str] = ()) -> None:
        """Change the weights of layers with int8 weights; scales and biases stay.

        ``narrowed`` has the outputs of layers whose weights will be int4.
        """
        for pair in pairs_of(model, self._inputs.layers):
            seen = self._inputs.of(pair.layer.output)
            if seen is None or seen.products is None:
                continue
            if seen.rows < _LEAST_ROWS * seen.products.shape[-1]:
                continue
            key = pair.layer.output, pair.scales.tobytes()
            if key not in self._done:
                most = MOST_STEP if pair.layer.output in narrowed else _MOST_WEIGHT
                self._done[key] = _rounded(pair, seen, seen.products, most)
            schema.set_constant(model, pair.weights, self._done[key])


def _rounded(pair: Pair, seen: Statistics, products: Array, most: int) -> Array:
    layer = pair.layer
    left = layer.by_group(layer.weights.astype(np.float64), seen.channels)
    scales = pair.scales.reshape(left.shape[:2])
    squares = np.diagonal(products, axis1=1, axis2=2)
    order = np.argsort(-squares, axis=1, kind="stable")
    columns = left.shape[2]
    # A group whose inputs are always zero has any weights.
    level = squares.mean(axis=1)
    damping = _DAMPING * np.where(level > 0, level, 1.0)
    sorted_once = np.take_along_axis(products, order[:, :, np.newaxis], axis=1)
    damped = np.take_along_axis(sorted_once, order[:, np.newaxis, :], axis=2)
    damped += damping[:, np.newaxis, np.newaxis] * np.eye(columns)
    # The rows of this factor say how the weights that follow make up for an error.
    factor = np.linalg.cholesky(np.linalg.inv(damped)).swapaxes(1, 2)
    left = np.take_along_axis(left, order[:, np.newaxis, :], axis=2)
    steps = np.zeros_like(left)
    for i in range(columns):
        steps[..., i] = np.clip(np.rint(left[..., i] / scales), -most, most)
        error = (left[..., i] - steps[..., i] * scales) / factor[:, np.newaxis, i, i]
        left[..., i + 1 :] -= error[..., np.newaxis] * factor[:, np.newaxis, i, i + 1 :]
    back = np.empty_like(steps)
    np.put_along_axis(back, np.broadcast_to(order[:, np.newaxis, :], back.shape), steps, axis=2)
    return layer.from_groups(back).astype(np.int8)
