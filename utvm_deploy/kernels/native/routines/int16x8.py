"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of int16 by int8 weights, summed up in 64 bits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.attributes import Convolution, FullyConnected
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operation import Operation
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
from utvm_deploy.kernels.portable.convolution import PRODUCT_BITS, Int16x8Conv2D, window_of

# Sums of FULLY_CONNECTED up to here are multiplied by a double's fraction without overflow.
_MOST_BITS_OF_SUM = 36
# Fewer are no word of weights.
_LEAST_CHANNELS = 4


def lower_int16x8_convolution(op: Operation) -> KernelCall:
    """CONV_2D, grouped or not, and DEPTHWISE_CONV_2D."""
    a = op.attributes(Convolution)
    source, result = op.source, op.result
    weights = op.constant(1)
    is_depthwise = op.kind == "DEPTHWISE_CONV_2D"
    inputs, outputs, depth = source.shape[3], result.shape[3], weights.shape[3]
    if is_depthwise:
        depth = 1
    window = window_of(op, weights.shape[1:3])
    plain = Int16x8Conv2D(window, inputs, outputs, depth, is_depthwise)
    kernel: Int16x8Conv2D | Int16x8ProductConv | Int16x8Depthwise = plain
    bias = op.bias(outputs).astype(np.int64)
    multiplier, shift = quantize_multipliers(op.scales(outputs))
    tables = {"weights": weights[0] if is_depthwise else weights, "bias": bias}
    tables |= {"multiplier": multiplier, "shift": shift}
    if a.sums_in_32_bits:
        kernel = replace(plain, sum_type="int32")
        tables["bias"] = bias.astype(np.int32)
    else:
        multiplier = np.array([short_multiplier(int(m)) for m in multiplier], np.int32)
        tables["multiplier"] = multiplier
        has_short_sums = is_short(
            np.moveaxis(weights, 3, 0) if is_depthwise else weights, bias, shift
        )
        if not is_depthwise and depth == inputs:
            kernel = Int16x8ProductConv(window, depth, outputs)
            tables["weights"] = pack_rows(weights.reshape(outputs, -1))
            tables = {"geometry": kernel.geometry(is_short=has_short_sums), **tables}
        elif is_depthwise and has_short_sums and outputs == inputs >= _LEAST_CHANNELS:
            window, seen = simplified(window, weights)
            kernel = Int16x8Depthwise(window, outputs)
            # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
            tables = kernel.tables(seen, bias, multiplier.astype(np.int32) << 16, -1 - shift)
    macs = math.prod(result.shape) * math.prod(weights.shape[1:3]) * depth
    low, high = a.clamp
    return op.call(kernel, {**tables, "low": low, "high": high}, macs=macs)


def lower_int16x8_dense(op: Operation) -> KernelCall:
    """FULLY_CONNECTED."""
    a = op.attributes(FullyConnected)
    result = op.result
    weights = op.constant(1)
    outputs, inputs = weights.shape
    bias = op.bias(outputs).astype(np.int64)
    if (inputs << PRODUCT_BITS) + int(np.abs(bias).max()) >= 1 << _MOST_BITS_OF_SUM:
        raise UnsupportedOperator(
            f"FULLY_CONNECTED {result.name} sums up {inputs} products of 16 by 8 bits and a bias, "
            f"which may exceed {_MOST_BITS_OF_SUM} bits; split the layer"
        )
    scales = [exact_multiplier(scale) for scale in op.scales(outputs)]
    tables = {"weights": pack_rows(weights), "bias": bias, "scales": np.array(scales, np.int32)}
    batch, (low, high) = math.prod(result.shape) // outputs, a.clamp
    kernel = Int16x8ProductDense(batch, inputs, outputs)
    macs = batch * inputs * outputs
    return op.call(kernel, {**tables, "low": low, "high": high}, macs=macs)


INT16_LOWERINGS = {
    "CONV_2D": lower_int16x8_convolution,
    "DEPTHWISE_CONV_2D": lower_int16x8_convolution,
    "FULLY_CONNECTED": lower_int16x8_dense,
}
