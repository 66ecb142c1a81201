"""What kernels of float32 take from a layer."""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.contract.window import Window


def float_bias(layer: Layer, channels: int) -> Array:
    """The bias; zeros stand for none, which the reference adds, too."""
    return layer.bias(channels).astype(np.float32)


def refused_weights(window: Window, weights: Array) -> str:
    """Why padding cannot be multiplied as zeros, or nothing."""
    if window.is_padded and not np.isfinite(weights).all():
        return "it has padding, and a weight that is not finite"
    return ""


def window_of_layer(layer: Layer, kernel: tuple[int, int]) -> Window:
    """The window of a convolution."""
    attributes = layer.attributes(Convolution)
    steps = attributes.strides, attributes.dilations, attributes.padding
    return Window.of(layer.source.shape, layer.result.shape, kernel, *steps)
