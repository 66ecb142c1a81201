"""Importing what multiplies float32 by weights or slides a window over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.files.supported_operator import FUSED, SupportedOperator
from utvm_deploy.frontend.operators.float_operands import (
    float_bias_of,
    float_weights_of,
    floats,
    limits_of,
)
from utvm_deploy.frontend.operators.geometry import (
    bilinear_of,
    conv3d_of,
    convolution_of,
    depth_multiplier_of,
    pool_of,
    transposed_of,
)
from utvm_deploy.frontend.operators.operands import made
from utvm_deploy.graph.attribute_values import NO_CLAMP
from utvm_deploy.graph.attributes import BatchMatmul, FullyConnected, TransposeConvolution
from utvm_deploy.graph.model import Operator


def import_convolution(op: SourceOperator) -> Operator:
    """CONV_2D, grouped where the weights have fewer channels than the image."""
    x, weights = op.input(0), float_weights_of(op)
    floats(op, x, op.output(), rank=4)
    bias = float_bias_of(op, weights.shape[0])
    attributes = replace(convolution_of(op, x, weights), limits=limits_of(op))
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def import_conv3d(op: SourceOperator) -> Operator:
    """CONV_3D."""
    x, weights = op.input(0), float_weights_of(op, rank=5)
    floats(op, x, op.output(), rank=5)
    bias = float_bias_of(op, weights.shape[4])
    return made(op, (op.inputs[0], op.inputs[1], bias), conv3d_of(op, x, weights, limits_of(op)))


def import_depthwise(op: SourceOperator) -> Operator:
    """DEPTHWISE_CONV_2D."""
    x, weights = op.input(0), float_weights_of(op)
    floats(op, x, op.output(), rank=4)
    multiplier = depth_multiplier_of(op, x, weights)
    bias = float_bias_of(op, weights.shape[3])
    attributes = replace(
        convolution_of(op, x, weights), limits=limits_of(op), depth_multiplier=multiplier
    )
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def import_transpose_conv(op: SourceOperator) -> Operator:
    """TRANSPOSE_CONV; the graph's operator does not have its first input, the output's shape."""
    x, weights = op.input(2), float_weights_of(op)
    floats(op, x, op.output(), rank=4)
    strides, padding = transposed_of(op, x, weights)
    bias = float_bias_of(op, weights.shape[0], position=3)
    # Version 1 of the operator has no activation.
    limits = limits_of(op, None if "FusedActivationFunction" in op.options else 0)
    attributes = TransposeConvolution(strides, padding, NO_CLAMP, limits=limits)
    return made(op, (op.inputs[2], op.inputs[1], bias), attributes)


def import_dense(op: SourceOperator) -> Operator:
    """FULLY_CONNECTED; weights may be computed."""
    weights = float_weights_of(op, rank=2, computed=True)
    floats(op, op.input(0), op.output())
    if op.integer("WeightsFormat") != 0:
        raise op.unsupported("its weights are shuffled; only the default format is supported")
    bias = float_bias_of(op, weights.shape[0])
    attributes = FullyConnected(NO_CLAMP, limits_of(op))
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def import_batch_matmul(op: SourceOperator) -> Operator:
    """BATCH_MATMUL; either side may be constant."""
    floats(op, op.input(0), op.input(1), op.output())
    turned = (bool(op.option("AdjX")), bool(op.option("AdjY")))
    return made(op, op.inputs[:2], BatchMatmul(*turned))


def import_pool(op: SourceOperator) -> Operator:
    """AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""
    x = op.input(0)
    floats(op, x, op.output(), rank=4)
    return made(op, op.inputs[:1], replace(pool_of(op, x), limits=limits_of(op)))


def import_resize_bilinear(op: SourceOperator) -> Operator:
    """RESIZE_BILINEAR of an NHWC image to a constant size."""
    floats(op, op.input(0), op.output(), rank=4)
    return made(op, op.inputs[:1], bilinear_of(op))


_FLOAT32 = ("float32",)
_WEIGHTED = f"constant weights and bias; {FUSED}"
#: What this module imports.
FLOAT_OPERATORS: Mapping[str, SupportedOperator] = {
    "AVERAGE_POOL_2D": SupportedOperator(import_pool, _FLOAT32, f"NHWC; {FUSED}"),
    "BATCH_MATMUL": SupportedOperator(
        import_batch_matmul, _FLOAT32, "either side computed or constant; batches broadcast"
    ),
    "CONV_2D": SupportedOperator(
        import_convolution, _FLOAT32, f"NHWC; grouped or not; {_WEIGHTED}"
    ),
    "CONV_3D": SupportedOperator(import_conv3d, _FLOAT32, f"NDHWC; {_WEIGHTED}"),
    "DEPTHWISE_CONV_2D": SupportedOperator(
        import_depthwise, _FLOAT32, f"NHWC; any depth multiplier; {_WEIGHTED}"
    ),
    "FULLY_CONNECTED": SupportedOperator(
        import_dense, _FLOAT32, f"weights computed or constant; constant bias; {FUSED}"
    ),
    "L2_POOL_2D": SupportedOperator(import_pool, _FLOAT32, f"NHWC; {FUSED}"),
    "MAX_POOL_2D": SupportedOperator(import_pool, _FLOAT32, f"NHWC; {FUSED}"),
    "RESIZE_BILINEAR": SupportedOperator(import_resize_bilinear, _FLOAT32, "NHWC; constant size"),
    "TRANSPOSE_CONV": SupportedOperator(import_transpose_conv, _FLOAT32, f"NHWC; {_WEIGHTED}"),
}
