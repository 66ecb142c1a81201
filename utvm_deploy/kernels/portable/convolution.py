"""What the convolutions share: their window, the stage that requantizes sums, their call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import Kernel, KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    effective_scales,
    input_of,
    kernel_call,
    output_of,
    output_parameters,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamped,
    fold_input_offset,
    quantize_multipliers,
    requantize,
    requantize_int64,
)
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.skeletons import int32s, tables_of


def window_of(graph: Graph, operator: Operator, kernel: tuple[int, int]) -> Window:
    """Where a convolution's window of ``kernel`` rows and columns lies."""
    a = operator.attributes
    assert isinstance(a, Convolution)
    source, result = input_of(graph, operator, 0)[1], output_of(graph, operator)[1]
    return Window.of(source.shape, result.shape, kernel, a.strides, a.dilations, a.padding)


def requantized_func(
    inputs: Sequence[Any],
    sums: Any,
    scalars: Mapping[str, Any],
    dtype: str = "int8",
    sum_type: str = "int32",
    add: Callable[[Any, Any], Any] = add_wrapping,
) -> Any:
    """The PrimFunc that requantizes ``sums`` of shape [n, y, x, channel] by channel.

    Its parameters are ``inputs``, then bias (of ``sum_type``), multiplier and shift by channel,
    then ``scalars``: the limits low and high, output_zero_point unless that is 0, and others.
    """
    channels = int(sums.shape[3])
    bias = te.placeholder((channels,), sum_type, "bias")
    multiplier, shift = tables_of(channels, "multiplier", "shift")
    scale = requantize_int64 if sum_type == "int64" else requantize

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        total = add(sums[n, y, x, o].astype(sum_type), bias[o])
        scaled = scale(total, multiplier[o], shift[o])
        if "output_zero_point" in scalars:
            scaled = scaled + scalars["output_zero_point"]
        return clamped(scaled, scalars["low"], scalars["high"], dtype)

    output = te.compute(sums.shape, element, name="requantize")
    return te.create_prim_func([*inputs, bias, multiplier, shift, *scalars.values(), output])


def int8_scalars(window: Window) -> dict[str, Any]:
    """The int32 parameters of an int8 convolution; only borders need the input's zero point."""
    border = ("input_zero_point",) if window.is_padded else ()
    return int32s((*border, "output_zero_point", "low", "high"))


def padded_image(window: Window, image: Any, scalars: Mapping[str, Any]) -> Any:
    """The image with its borders, which hold the input's zero point."""
    if not window.is_padded:
        return image
    return window.pad(image, scalars["input_zero_point"].astype("int8"))


def convolution_call(
    graph: Graph,
    operator: Operator,
    kernel: Kernel,
    window: Window,
    weights: Array,
    by_output: Array,
) -> KernelCall:
    """The call; ``weights`` are as ``kernel`` wants them, ``by_output`` has the outputs outermost.

    The bias contains the input's zero point, so the kernel multiplies the stored inputs.
    """
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    zero_point = quantization_of(input_of(graph, operator, 0)[1]).zero_point
    outputs = by_output.shape[0]
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    bias = fold_input_offset(bias_of(graph, operator, outputs), by_output, zero_point)
    parameters = {"weights": weights, "bias": bias, "multiplier": multiplier, "shift": shift}
    border = {"input_zero_point": zero_point} if window.is_padded else {}
    return kernel_call(
        graph,
        operator,
        kernel,
        {**parameters, **border, **output_parameters(graph, operator, attributes.clamp)},
        macs=math.prod(output_of(graph, operator)[1].shape) * (by_output.size // outputs),
    )
