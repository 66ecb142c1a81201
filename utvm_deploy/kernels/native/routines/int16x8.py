"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of int16 by int8 weights, summed up in 64 bits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import Convolution, FullyConnected
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.operands import (
    constant_of,
    effective_scales,
    input_of,
    operand_of,
    output_of,
)
from utvm_deploy.kernels.contract.requantization import (
    exact_multiplier,
    quantize_multipliers,
    short_multiplier,
)
from utvm_deploy.kernels.native.routines.int16x8_depthwise import Int16x8Depthwise
from utvm_deploy.kernels.native.routines.int16x8_products import (
    Int16x8ProductConv,
    Int16x8ProductDense,
    is_short,
    pack_rows,
)
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.kernels.portable.convolution import window_of
from utvm_deploy.kernels.portable.int16x8_convolution import PRODUCT_BITS, Int16x8Conv2D

# Sums of FULLY_CONNECTED up to here are multiplied by a double's fraction without overflow.
_MOST_BITS_OF_SUM = 36
# Fewer are no word of weights.
_LEAST_CHANNELS = 4


def lower_int16x8_convolution(graph: Graph, operator: Operator) -> KernelCall:
    """CONV_2D, grouped or not, and DEPTHWISE_CONV_2D."""
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    is_depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    outputs = result.shape[3]
    window = window_of(graph, operator, weights.shape[1:3])
    depth = 1 if is_depthwise else weights.shape[3]
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    kernel = Int16x8Conv2D(window, source.shape[3], outputs, depth, is_depthwise)
    bias = _bias(graph, operator, outputs)
    if attributes.sums_in_32_bits:
        kernel = replace(kernel, sum_type="int32")
        bias = bias.astype(np.int32)
    else:
        multiplier = np.array([short_multiplier(int(m)) for m in multiplier], np.int32)
    made: Int16x8Conv2D | Int16x8ProductConv | Int16x8Depthwise = kernel
    by_channel = np.moveaxis(weights, 3, 0) if is_depthwise else weights
    scaling = (("bias", bias), ("multiplier", multiplier), ("shift", shift))
    tables = [ConstantArgument("weights", weights[0] if is_depthwise else weights)]
    tables += [ConstantArgument(name, table) for name, table in scaling]
    has_one_each = is_depthwise and outputs == source.shape[3] >= _LEAST_CHANNELS
    if has_one_each and not attributes.sums_in_32_bits and is_short(by_channel, bias, shift):
        window, seen = simplified(window, weights)
        made = Int16x8Depthwise(window, outputs)
        # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
        tables = made.tables(seen, bias, multiplier.astype(np.int32) << 16, -1 - shift)
    if not is_depthwise and not attributes.sums_in_32_bits and depth == source.shape[3]:
        made = Int16x8ProductConv(window, depth, outputs)
        packed = pack_rows(weights.reshape(outputs, -1))
        tables = [
            ConstantArgument("geometry", made.geometry(is_short=is_short(weights, bias, shift))),
            ConstantArgument("weights", packed),
            *tables[1:],
        ]
    return KernelCall(
        made,
        (
            operand_of(position, source),
            *tables,
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        macs=math.prod(result.shape) * weights.shape[1] * weights.shape[2] * depth,
    )


def lower_int16x8_dense(graph: Graph, operator: Operator) -> KernelCall:
    """FULLY_CONNECTED."""
    attributes = operator.attributes
    assert isinstance(attributes, FullyConnected)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    outputs, inputs = weights.shape
    bias = _bias(graph, operator, outputs)
    if (inputs << PRODUCT_BITS) + int(np.abs(bias).max()) >= 1 << _MOST_BITS_OF_SUM:
        raise UnsupportedOperator(
            f"FULLY_CONNECTED {result.name} sums up {inputs} products of 16 by 8 bits and a bias, "
            f"which may exceed {_MOST_BITS_OF_SUM} bits; split the layer"
        )
    scales = np.array(
        [exact_multiplier(s) for s in effective_scales(graph, operator, outputs)], np.int32
    )
    batch = math.prod(result.shape) // outputs
    return KernelCall(
        Int16x8ProductDense(batch, inputs, outputs),
        (
            operand_of(position, source),
            ConstantArgument("weights", pack_rows(weights)),
            ConstantArgument("bias", bias),
            ConstantArgument("scales", scales),
            ScalarArgument("low", attributes.clamp[0]),
            ScalarArgument("high", attributes.clamp[1]),
            TensorArgument(output),
        ),
        macs=batch * inputs * outputs,
    )


def _bias(graph: Graph, operator: Operator, channels: int) -> Array:
    if len(operator.inputs) < 3 or operator.inputs[2] is None:
        return np.zeros(channels, dtype=np.int64)
    return constant_of(graph, operator, 2).astype(np.int64)


INT16_LOWERINGS = {
    "CONV_2D": lower_int16x8_convolution,
    "DEPTHWISE_CONV_2D": lower_int16x8_convolution,
    "FULLY_CONNECTED": lower_int16x8_dense,
}
