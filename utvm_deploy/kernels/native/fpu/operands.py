"""What kernels of float32 take from a layer."""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.contract.window import Window


def float_bias(layer: Layer, channels: int) -> Array:
    """The bias; zeros stand for none, which the reference adds, too."""
    return layer.bias(channels).astype(np.float32)


def elements(values: Array, dtype: str) -> Array:
    """Values of float32 as the elements of a kernel: floats, or numbers of float16."""
    return values if dtype == "float32" else FLOAT16_ARITHMETIC.encoded(values)


#: How often a text has what another type has otherwise: names, the type, zeros, bytes.
_COUNTS = {
    "utvm_float_border": (2, 2, 0, 0),
    "utvm_float_row": (5, 7, 1, 0),
    "utvm_float_rows": (4, 3, 0, 2),
}


def copying_texts(dtype: str, *names: str) -> tuple[str, ...]:
    """The C of functions that copy elements; those of float16 are ``utvm_half_...``."""
    if dtype == "float32":
        return tuple(family_text("fpu", name) for name in names)
    size = element_type(dtype).unit_bytes
    old = "utvm_float_", "float ", "0.0f", "bytes / 4"
    new = "utvm_half_", f"{dtype}_t ", "0", f"bytes / {size}"
    return tuple(
        replaced(family_text("fpu", name), *zip(old, new, _COUNTS[name], strict=True))
        for name in names
    )


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
