"""Importing what multiplies by weights or slides a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from utvm_deploy.frontend.files.source import Several, SourceOperator
from utvm_deploy.frontend.files.supported_operator import COMPUTED, EQUAL, FUSED, SupportedOperator
from utvm_deploy.frontend.operators.float_operands import limits_of
from utvm_deploy.frontend.operators.geometry import (
    bilinear_of,
    convolution_of,
    depth_multiplier_of,
    pool_of,
    transposed_of,
)
from utvm_deploy.frontend.operators.operands import (
    alike,
    bias_of,
    clamp_of,
    made,
    quantized,
    scale_of,
    weights_of,
    zero_point_of,
)
from utvm_deploy.graph.attributes import BatchMatmul, FullyConnected, TransposeConvolution
from utvm_deploy.graph.model import Operator, Tensor

_INT32 = 2  # the schema's number of that type
#: What sums of products with int8 weights are added to.
_BIAS_TYPES = {"int8": "int32", "int16": "int64"}
_WEIGHTS_TYPES = ("int8", "int4")
# LiteRT refuses pooling whose input and output scales differ by more.
_POOL_SCALE_TOLERANCE = 1e-6
_MOST_STEPS = 2**31 - 1


def import_convolution(op: SourceOperator) -> Operator:
    """CONV_2D, grouped where the weights have fewer channels than the image."""
    x, weights, out = op.input(0), weights_of(op, 0, types=_WEIGHTS_TYPES), op.output()
    alike(op, x, out, rank=4)
    bias, is_short = _short_or_long_bias(op, x, weights)
    attributes = replace(
        convolution_of(op, x, weights),
        clamp=clamp_of(op, out),
        sums_in_32_bits=is_short,
        limits=limits_of(op),
    )
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def _short_or_long_bias(
    op: SourceOperator, x: Tensor, weights: Tensor, position: int = 2
) -> tuple[int | None, bool]:
    """The bias, and whether int16 is summed up in 32 bits, because the file says so."""
    channels, said = weights.shape[0], op.options.get("QuantizedBiasType", 0)
    if x.dtype != "int16" or said != _INT32:
        return bias_of(op, channels, position, _BIAS_TYPES[x.dtype]), False
    bias = bias_of(op, channels, position, "int32")
    assert weights.data is not None
    sums = np.abs(weights.data.reshape(channels, -1).astype(np.int64)).sum(axis=1) << 15
    data = None if bias is None else op.tensors[bias].data
    if data is not None:
        sums = sums + np.abs(data.astype(np.int64))
    if sums.max() >= 1 << 31:
        raise op.unsupported(
            "its sums may overflow the 32 bits that its QuantizedBiasType asks for; "
            "convert it with a bias of int64"
        )
    return bias, True


def import_depthwise(op: SourceOperator) -> Operator:
    """DEPTHWISE_CONV_2D."""
    x, weights, out = op.input(0), weights_of(op, 3, types=_WEIGHTS_TYPES), op.output()
    alike(op, x, out, rank=4)
    multiplier = depth_multiplier_of(op, x, weights)
    bias = bias_of(op, weights.shape[3], dtype=_BIAS_TYPES[x.dtype])
    attributes = replace(
        convolution_of(op, x, weights),
        clamp=clamp_of(op, out),
        depth_multiplier=multiplier,
        limits=limits_of(op),
    )
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def import_transpose_conv(op: SourceOperator) -> Operator:
    """TRANSPOSE_CONV, whose first input, the output's shape, the output repeats."""
    x, out = op.input(2), op.output()
    alike(op, x, out, rank=4)
    weights = weights_of(op, 0)
    strides, padding = transposed_of(op, x, weights)
    bias, is_short = _short_or_long_bias(op, x, weights, position=3)
    clamp = clamp_of(op, out) if "FusedActivationFunction" in op.options else clamp_of(op, out, 0)
    attributes = TransposeConvolution(strides, padding, clamp, is_short)
    return made(op, (op.inputs[2], op.inputs[1], bias), attributes)


def import_batch_matmul(op: SourceOperator) -> Operator | Several:
    """BATCH_MATMUL; either side may be constant."""
    left, right = op.input(0), op.input(1)
    alike(op, left, op.output())
    if right.data is not None and right.quantization and right.quantization.axis is not None:
        return _by_channel(op, left, right)
    if right.dtype == left.dtype:
        alike(op, right)
    elif zero_point_of(quantized(op, right, types=_WEIGHTS_TYPES)) != 0:
        raise op.unsupported(
            f"tensor '{right.name}' has the zero point {zero_point_of(right)}; only 0 is supported "
            "with int16, or of int4"
        )
    if right.dtype == "int4" and right.data is None:
        raise op.unsupported(f"tensor '{right.name}' of int4 is computed; it must be constant")
    turned = (bool(op.option("AdjX")), bool(op.option("AdjY")))
    return made(op, op.inputs[:2], BatchMatmul(*turned))


def _by_channel(op: SourceOperator, left: Tensor, right: Tensor) -> Several:
    """BATCH_MATMUL by a constant that has a scale for each column: that is FULLY_CONNECTED.

    ai-edge-quantizer writes it. LiteRT's kernels of BATCH_MATMUL read one scale, which it lacks.
    """
    assert right.data is not None and right.quantization is not None
    quantization, turned = right.quantization, bool(op.option("AdjY"))
    columns = len(right.shape) - (2 if turned else 1)
    if (
        right.dtype not in _WEIGHTS_TYPES
        or any(quantization.zero_points)
        or quantization.axis != columns
    ):
        raise op.unsupported(
            f"constant '{right.name}' is {right.dtype} with scales along dimension "
            f"{quantization.axis}; only int8 or int4 of zero point 0 is supported, with one scale "
            f"or with scales along dimension {columns}, the columns"
        )
    out, made_columns = op.output(), right.shape[columns]
    if op.option("AdjX") or out.shape != (*left.shape[:-1], made_columns):
        raise op.unsupported(
            f"constant '{right.name}' of {right.shape} has a scale for each column, which is "
            f"supported where it is one matrix and makes (..., {made_columns}) of each row"
        )
    matrix = right.data.reshape(right.shape[-2:])
    rows = np.ascontiguousarray(matrix if turned else matrix.T)
    rows.flags.writeable = False
    weights = replace(
        right, shape=rows.shape, data=rows, quantization=replace(quantization, axis=0), source=None
    )
    _check_reach(op, left, weights, None, out)
    inputs = (op.inputs[0], len(op.tensors), None)
    attributes = FullyConnected(clamp_of(op, out, 0))
    dense = Operator("FULLY_CONNECTED", inputs, op.outputs, attributes, (op.index,))
    return Several((dense,), (weights,))


def import_resize_bilinear(op: SourceOperator) -> Operator:
    """RESIZE_BILINEAR of an NHWC image to a constant size."""
    out = op.output()
    alike(op, op.input(0), out, rank=4)
    return made(op, op.inputs[:1], bilinear_of(op))


def import_fully_connected(op: SourceOperator) -> Operator:
    """FULLY_CONNECTED of rows as long as the weights."""
    x, out = op.input(0), op.output()
    weights = weights_of(op, 0, rank=2, types=_WEIGHTS_TYPES)
    alike(op, x, out)
    if op.integer("WeightsFormat") != 0:
        raise op.unsupported("its weights are shuffled; only the default format is supported")
    bias, _ = _short_or_long_bias(op, x, weights)
    _check_reach(op, x, weights, bias, out)
    attributes = FullyConnected(clamp_of(op, out), limits_of(op))
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def _check_reach(
    op: SourceOperator, x: Tensor, weights: Tensor, bias: int | None, out: Tensor
) -> None:
    """The reference rounds sums times their scale, a double, to int32: undefined beyond that."""
    assert weights.data is not None and weights.quantization is not None
    low, high = (limit - zero_point_of(x) for limit in x.element.limits)
    up = np.maximum(weights.data, 0).sum(axis=1, dtype=np.int64)
    down = np.minimum(weights.data, 0).sum(axis=1, dtype=np.int64)
    added = None if bias is None else op.tensors[bias].data
    largest = up * high + down * low + (0 if added is None else added)
    least = up * low + down * high + (0 if added is None else added)
    scales = np.asarray(weights.quantization.scales, np.float64) * scale_of(x) / scale_of(out)
    reach = float((np.maximum(np.abs(largest), np.abs(least)) * scales).max())
    if reach >= _MOST_STEPS:
        raise op.unsupported(
            f"its sums reach {reach:.3g} steps of its output's scale {scale_of(out):g}, where the "
            "reference's arithmetic is undefined; quantize it again"
        )


def import_pool(op: SourceOperator) -> Operator:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    x, out = op.input(0), op.output()
    alike(op, x, out, rank=4)
    if (
        zero_point_of(x) != zero_point_of(out)
        or abs(scale_of(x) - scale_of(out)) > _POOL_SCALE_TOLERANCE
    ):
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    attributes = replace(pool_of(op, x), clamp=clamp_of(op, out), limits=limits_of(op))
    return made(op, op.inputs[:1], attributes)


_WEIGHTS = "constant int8 weights with zero point 0; constant bias of int32, of int64 for int16"
_OR_INT4 = _WEIGHTS.replace("int8 weights", "weights of int8 or int4", 1)
_WEIGHTED = f"{_OR_INT4}; {FUSED}"
_OR_SHORT = f"{_OR_INT4} or int32 by QuantizedBiasType; {FUSED}"
#: What this module imports.
OPERATORS: Mapping[str, SupportedOperator] = {
    "AVERAGE_POOL_2D": SupportedOperator(import_pool, COMPUTED, f"NHWC; {EQUAL}; {FUSED}"),
    "BATCH_MATMUL": SupportedOperator(
        import_batch_matmul,
        COMPUTED,
        "either side computed or constant; batches broadcast; int16 by int16 or by int8 of zero "
        "point 0. At the right, constants may be int4, and have a scale for each column",
    ),
    "CONV_2D": SupportedOperator(
        import_convolution, COMPUTED, f"NHWC; grouped or not; {_OR_SHORT}"
    ),
    "DEPTHWISE_CONV_2D": SupportedOperator(
        import_depthwise, COMPUTED, f"NHWC; any depth multiplier; {_WEIGHTED}"
    ),
    "FULLY_CONNECTED": SupportedOperator(import_fully_connected, COMPUTED, _OR_SHORT),
    "MAX_POOL_2D": SupportedOperator(import_pool, COMPUTED, f"NHWC; {EQUAL}; {FUSED}"),
    "RESIZE_BILINEAR": SupportedOperator(import_resize_bilinear, COMPUTED, "NHWC; constant size"),
    "TRANSPOSE_CONV": SupportedOperator(
        import_transpose_conv,
        COMPUTED,
        f"NHWC; {_WEIGHTS} or int32 by QuantizedBiasType; {FUSED}",
    ),
}
