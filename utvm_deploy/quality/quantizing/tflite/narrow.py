"""Weights of int4 in place of int8: new scales, and half bytes in the file.

ai-edge-quantizer has made weights of int8. Those of some layers get coarser scales here. Of each
channel, it is the scale whose steps are nearest to the real weights, by the sum of squares. As for
int8, the lowest step stays unused, so that a weight and its negative are as exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.quality.quantizing.facts import ALL_LAYERS
from utvm_deploy.quality.quantizing.tflite.layers import Layer, Pair, pairs_of

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any

#: The largest step of a weight.
MOST_STEP = 7
#: The scales that are tried, as parts of the one that holds the largest weight.
_PARTS = np.linspace(1.0, 0.5, 26)


def narrow_weights(
    model: Any, layers: Mapping[str, Layer], wanted: Collection[str]
) -> tuple[Pair, ...]:
    """Give layers the scales, weights and biases of int4, which are still stored as int8.

    ``wanted`` has the outputs of these layers, or is ``ALL_LAYERS``. Layers with int16 activations
    stay as they are. Gives the layers that were changed.
    """
    found = []
    for pair in pairs_of(model, layers) if wanted else ():
        if pair.x.type == schema.INT8 and (wanted == ALL_LAYERS or pair.layer.output in wanted):
            _narrow(model, pair)
            found.append(pair)
    return tuple(found)


def pack_weights(model: Any, narrowed: Collection[Pair]) -> None:
    """Store the weights of these layers as int4."""
    for pair in narrowed:
        steps: Array = schema.constant(model, pair.weights)
        packed = element_type("int4").packed(steps)
        schema.set_constant(model, pair.weights, np.frombuffer(packed, np.uint8))
        pair.weights.type = schema.INT4


def _narrow(model: Any, pair: Pair) -> None:
    layer, old = pair.layer, pair.scales
    rows = np.moveaxis(layer.weights, layer.channel_axis, 0).astype(np.float64)
    shape, is_single = rows.shape, len(pair.weights.quantization.scale) == 1
    channels = rows.reshape(1 if is_single else shape[0], -1)
    new = _scales(channels, old[: len(channels)])
    steps = np.clip(np.rint(channels / new[:, np.newaxis]), -MOST_STEP, MOST_STEP)
    stored = np.moveaxis(steps.reshape(shape), 0, layer.channel_axis).astype(np.int8)
    schema.set_constant(model, pair.weights, np.ascontiguousarray(stored))
    pair.weights.quantization.scale = new.astype(np.float32)
    if pair.bias is not None:
        bias: Array = schema.constant(model, pair.bias)
        kept = np.rint(bias.reshape(-1) * (old / np.broadcast_to(new, old.shape)))
        schema.set_constant(model, pair.bias, kept.astype(bias.dtype).reshape(bias.shape))
        x_scale = float(pair.x.quantization.scale[0])
        sized = np.broadcast_to(new, (len(pair.bias.quantization.scale),))
        pair.bias.quantization.scale = (x_scale * sized).astype(np.float32)


def _scales(channels: Array, old: Array) -> Array:
    """The best scale of each row; of a row of zeros, the old one.

    None is finer than the old one: that has room for the bias where all weights are almost zero.
    """
    largest = np.abs(channels).max(axis=1) / MOST_STEP
    best, least = np.maximum(largest, old), np.full(len(channels), np.inf)
    for part in _PARTS:
        tried = np.maximum(part * largest, old)
        steps = np.clip(np.rint(channels / tried[:, np.newaxis]), -MOST_STEP, MOST_STEP)
        error = ((channels - steps * tried[:, np.newaxis]) ** 2).sum(axis=1)
        best, least = np.where(error < least, tried, best), np.minimum(error, least)
    # What the file can hold.
    return best.astype(np.float32).astype(np.float64)
