"""Corrects biases for what rounded weights add to the mean of each output channel.

Rounding changes a weight by a constant, and inputs such as pictures, or outputs of RELU, have means
far from 0. So each output channel is off by the sum of these products, on every input. This takes
that sum from the bias, with the means of the samples. It is the bias correction of Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction" (2019), section 4.2.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.tflite.layers import Inputs, pairs_of

#: Computed in float64; the stubs of numpy know no sums of arrays of any type.
Array: TypeAlias = Any


def correct_biases(model: Any, inputs: Inputs) -> None:
    """Change the biases of layers with int8 weights."""
    for pair in pairs_of(model, inputs.layers):
        seen = inputs.of(pair.layer.output)
        steps: Array = None if pair.bias is None else schema.constant(model, pair.bias)
        stored: Array = schema.constant(model, pair.weights)
        if seen is None or steps is None or stored is None:
            continue
        scales = pair.scales
        axis = [1] * stored.ndim
        axis[pair.layer.channel_axis] = -1
        change = stored * scales.reshape(axis) - pair.layer.weights
        # (groups, outputs, columns) by (groups, columns, 1)
        rows = pair.layer.by_group(change, seen.channels)
        added = np.matmul(rows, seen.mean[:, :, np.newaxis]).reshape(-1)
        off = np.rint(added / (float(pair.x.quantization.scale[0]) * scales))
        limits = np.iinfo(steps.dtype)
        corrected = np.clip(steps.reshape(-1) - off, limits.min, limits.max)
        schema.set_constant(model, pair.bias, corrected.astype(steps.dtype).reshape(steps.shape))
