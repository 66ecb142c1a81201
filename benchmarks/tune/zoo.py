"""Common shapes of networks for microcontrollers, each as a model of its own with random weights.

What records ship for: of a model that nobody has seen, most layers are one of these or near one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utvm_deploy.graph.attributes import Attributes, Convolution, FullyConnected
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor

CLAMP = (-128, 127)

# Height, width, channels in, channels out, window, strides.
Shape = tuple[int, int, int, int, tuple[int, int], tuple[int, int]]

#: Edge of the image, channels in, channels out; windows of 3x3, strides 1 and 2.
SQUARES = (
    (96, 3, 8), (64, 3, 16), (32, 3, 16), (32, 8, 16), (32, 16, 16), (32, 32, 32), (24, 16, 32),
    (16, 16, 16), (16, 16, 32), (16, 32, 32), (16, 32, 64), (8, 32, 32), (8, 32, 64), (8, 64, 64),
    (4, 64, 128),
)  # fmt: skip
#: What begins a network: windows and strides of many sizes on few channels.
FIRST: tuple[Shape, ...] = (
    (96, 96, 1, 8, (3, 3), (2, 2)), (128, 128, 3, 16, (3, 3), (2, 2)),
    (96, 96, 3, 16, (3, 3), (2, 2)), (48, 48, 1, 8, (3, 3), (1, 1)),
    (28, 28, 1, 6, (5, 5), (1, 1)), (32, 32, 3, 32, (5, 5), (1, 1)),
    (49, 10, 1, 64, (10, 4), (2, 2)), (49, 40, 1, 8, (10, 8), (2, 2)),
    (49, 10, 1, 172, (10, 4), (2, 1)),
)  # fmt: skip
#: Larger windows further in.
LARGE: tuple[Shape, ...] = (
    (12, 12, 6, 16, (5, 5), (1, 1)), (16, 16, 32, 32, (5, 5), (1, 1)),
    (8, 8, 32, 64, (5, 5), (1, 1)), (14, 14, 16, 32, (5, 5), (1, 1)),
    (10, 10, 24, 24, (7, 7), (1, 1)),
)  # fmt: skip
#: Along time: steps, channels in, channels out, window, stride.
TEMPORAL = (
    (98, 40, 16, 3, 1), (98, 16, 24, 9, 2), (49, 24, 24, 9, 1), (49, 24, 32, 9, 2),
    (25, 32, 32, 9, 1), (25, 32, 48, 9, 2), (13, 48, 48, 9, 1), (128, 3, 32, 5, 1),
    (128, 16, 32, 3, 1), (64, 32, 64, 3, 1), (200, 1, 16, 7, 2), (64, 64, 64, 5, 1),
)  # fmt: skip
#: Edge, channels in, channels out: MobileNet V1 and V2 of several widths, DS-CNN, shortcuts.
POINTWISE = (
    (48, 8, 16), (48, 16, 32), (24, 16, 32), (24, 32, 32), (24, 64, 64), (12, 32, 64),
    (12, 64, 64), (12, 64, 128), (12, 24, 144), (12, 144, 24), (6, 64, 128), (6, 128, 128),
    (6, 256, 256), (3, 128, 256), (3, 256, 256), (3, 512, 512), (48, 8, 48), (24, 48, 8),
    (12, 48, 16), (12, 16, 96), (6, 96, 16), (6, 96, 24), (6, 24, 144), (3, 144, 40), (3, 40, 240),
    (3, 240, 112), (11, 64, 64), (11, 172, 172), (8, 48, 48),
)  # fmt: skip
#: Shortcuts: edge, channels in, channels out; stride 2.
SHORTCUTS = ((32, 16, 32), (16, 32, 64), (8, 64, 128))
#: Edge, channels; windows of 3x3 and 5x5, strides 1 and 2.
DEPTHWISE = ((48, 8), (48, 16), (24, 32), (12, 64), (12, 144), (6, 128), (3, 256))
#: Height, width, channels, window, stride: the others.
DEPTHWISE_MORE = (
    (25, 5, 64, 3, 1), (25, 5, 172, 3, 1), (24, 24, 48, 3, 2), (24, 24, 64, 3, 1),
    (12, 12, 96, 3, 1), (12, 12, 128, 3, 2), (6, 6, 96, 3, 1), (6, 6, 144, 3, 1), (6, 6, 256, 3, 1),
    (3, 3, 240, 3, 1), (3, 3, 512, 3, 1), (48, 48, 32, 3, 2), (64, 64, 16, 3, 1),
)  # fmt: skip
#: Inputs, outputs.
DENSE = (
    (64, 10), (64, 12), (128, 128), (128, 8), (8, 128), (128, 640), (256, 2), (256, 32), (256, 64),
    (512, 10), (640, 128), (784, 128), (400, 120), (120, 84), (84, 10), (1024, 2), (1024, 10),
    (3136, 64), (4000, 4), (1280, 10), (32, 32),
)  # fmt: skip


def zoo() -> Iterator[Graph]:
    """Each shape as a model of its own."""
    for edge, inputs, outputs in SQUARES:
        for stride in (1, 2):
            yield _convolution((edge, edge, inputs, outputs, (3, 3), (stride, stride)))
    for shape in (*FIRST, *LARGE):
        yield _convolution(shape)
    for steps, inputs, outputs, window, stride in TEMPORAL:
        yield _convolution((steps, 1, inputs, outputs, (window, 1), (stride, 1)))
    for edge, inputs, outputs in POINTWISE:
        yield _convolution((edge, edge, inputs, outputs, (1, 1), (1, 1)))
    for edge, inputs, outputs in SHORTCUTS:
        yield _convolution((edge, edge, inputs, outputs, (1, 1), (2, 2)))
    for edge, channels in DEPTHWISE:
        for window, stride in ((3, 1), (3, 2), (5, 1), (5, 2)):
            yield _depthwise(edge, edge, channels, window, stride)
    for height, width, channels, window, stride in DEPTHWISE_MORE:
        yield _depthwise(height, width, channels, window, stride)
    for inputs, outputs in DENSE:
        yield _dense(inputs, outputs)


def _depthwise(height: int, width: int, channels: int, window: int, stride: int) -> Graph:
    shape = (height, width, channels, channels, (window, window), (stride, stride))
    return _convolution(shape, is_depthwise=True)


def _convolution(shape: Shape, *, is_depthwise: bool = False) -> Graph:
    height, width, inputs, outputs, window, strides = shape
    to, padding = [], []
    for extent, kernel, stride in zip((height, width), window, strides, strict=True):
        to.append(-(-extent // stride))
        missing = max((to[-1] - 1) * stride + kernel - extent, 0)
        padding.append((missing // 2, missing - missing // 2))
    (top, bottom), (left, right) = padding
    weights = (1, *window, outputs) if is_depthwise else (outputs, *window, inputs)
    return _graph(
        "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D",
        (1, height, width, inputs),
        weights,
        (1, *to, outputs),
        Convolution(strides, (1, 1), (top, bottom, left, right), CLAMP),
        axis=3 if is_depthwise else 0,
    )


def _dense(inputs: int, outputs: int) -> Graph:
    attributes = FullyConnected(CLAMP)
    return _graph("FULLY_CONNECTED", (1, inputs), (outputs, inputs), (1, outputs), attributes)


def _graph(
    kind: str,
    source: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    attributes: Attributes,
    *,
    axis: int | None = None,
) -> Graph:
    rng = np.random.default_rng(1)
    outputs = result[-1]
    depth = int(np.prod(weights)) // outputs
    scales = 1 if axis is None else outputs
    spread = rng.uniform(0.5, 1.5, scales).astype(np.float32) * np.float32(0.02)
    of_weights = Quantization(tuple(map(float, spread)), (0,) * scales, axis)
    # A fused RELU6 is behind nearly every depthwise convolution: one rounding is exact then.
    zero_point = -128 if kind == "DEPTHWISE_CONV_2D" else -5
    of_result = Quantization((float(np.float32(0.05 * 70 * 0.02 * depth**0.5)),), (zero_point,))
    values = rng.integers(-127, 128, weights, dtype=np.int8)
    bias = rng.integers(-500, 500, outputs, dtype=np.int32)
    of_bias = Quantization(tuple(0.05 * s for s in of_weights.scales), (0,) * scales, None)
    tensors = (
        Tensor("input", source, "int8", Quantization((float(np.float32(0.05)),), (3,))),
        Tensor("weights", weights, "int8", of_weights, values),
        Tensor("bias", (outputs,), "int32", of_bias, bias),
        Tensor("output", result, "int8", of_result),
    )
    operator = Operator(kind, (0, 1, 2), (3,), attributes, (0,))
    return Graph("zoo", tensors, (operator,), (0,), (3,), "")
