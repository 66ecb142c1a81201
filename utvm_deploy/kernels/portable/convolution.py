"""What CONV_2D and DEPTHWISE_CONV_2D have in common: their window, their outputs, their call."""

from __future__ import annotations

import math
from typing import Any

from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    Kernel,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    effective_scales,
    input_of,
    output_arguments,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import (
    add_wrapping,
    clamp_int8,
    fold_input_offset,
    quantize_multipliers,
    requantize,
)
from utvm_deploy.kernels.contract.window import Window


def window_of(graph: Graph, operator: Operator, kernel: tuple[int, int]) -> Window:
    """Where a convolution's window of ``kernel`` rows and columns lies."""
    a = operator.attributes
    assert isinstance(a, Convolution)
    source, result = input_of(graph, operator, 0)[1], output_of(graph, operator)[1]
    return Window.of(source.shape, result.shape, kernel, a.strides, a.dilations, a.padding)


def scaled_outputs(window: Window, image: Any, weights: Any, border: Any, sums: Any) -> Any:
    """The PrimFunc of a convolution of int8 whose sums, [n, y, x, channel], are ``sums``."""
    outputs = int(sums.shape[3])
    bias, multiplier, shift = (
        te.placeholder((outputs,), "int32", name) for name in ("bias", "multiplier", "shift")
    )
    scalars = [te.var(name, "int32") for name in ("output_zero_point", "low", "high")]
    output_zero_point, low, high = scalars

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        scaled = requantize(add_wrapping(sums[n, y, x, o], bias[o]), multiplier[o], shift[o])
        return clamp_int8(scaled + output_zero_point, low, high)

    output = te.compute(sums.shape, element, name="requantize")
    if window.is_padded:
        scalars = [border, *scalars]
    return te.create_prim_func([image, weights, bias, multiplier, shift, *scalars, output])


def convolution_call(
    graph: Graph,
    operator: Operator,
    kernel: Kernel,
    window: Window,
    weights: Array,
    by_output: Array,
) -> KernelCall:
    """The call; ``weights`` as ``kernel`` wants them, ``by_output`` with the outputs outermost."""
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    position, source = input_of(graph, operator, 0)
    outputs = by_output.shape[0]
    zero_point = quantization_of(source).zero_point
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    bias = fold_input_offset(bias_of(graph, operator, outputs), by_output, zero_point)
    border = [ScalarArgument("input_zero_point", zero_point)] if window.is_padded else []
    return KernelCall(
        kernel,
        (
            TensorArgument(position),
            ConstantArgument("weights", weights),
            ConstantArgument("bias", bias),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            *border,
            *output_arguments(graph, operator, attributes.clamp),
        ),
        macs=math.prod(output_of(graph, operator)[1].shape) * (by_output.size // outputs),
    )
