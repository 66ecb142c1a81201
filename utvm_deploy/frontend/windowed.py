"""Importing what multiplies by weights or slides a window."""

from __future__ import annotations

from utvm_deploy.frontend.operands import (
    bias_of,
    clamp_of,
    made,
    padding_of,
    quantized,
    scale_of,
    weights_of,
    zero_point_of,
)
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import Convolution, FullyConnected, Pool
from utvm_deploy.graph.model import Operator, Tensor

# LiteRT refuses pooling whose input and output scales differ by more.
_POOL_SCALE_TOLERANCE = 1e-6


def import_convolution(op: SourceOperator) -> Operator:
    x, weights, out = (
        quantized(op, op.input(0), 4),
        weights_of(op, 0),
        quantized(op, op.output(), 4),
    )
    if weights.shape[3] != x.shape[3]:
        raise op.unsupported(
            f"it is a grouped convolution ({x.shape[3]} input channels, weights for "
            f"{weights.shape[3]}); only convolutions over all channels are supported"
        )
    bias = bias_of(op, weights.shape[0])
    return made(op, (op.inputs[0], op.inputs[1], bias), _geometry(op, x, weights, out, 1))


def import_depthwise(op: SourceOperator) -> Operator:
    x, weights, out = (
        quantized(op, op.input(0), 4),
        weights_of(op, 3),
        quantized(op, op.output(), 4),
    )
    multiplier, rest = divmod(weights.shape[3], x.shape[3])
    if rest or not multiplier or weights.shape[0] != 1:
        raise op.damaged(f"weights of shape {weights.shape} do not fit an input of shape {x.shape}")
    # The option is redundant, and LiteRT too goes by the shapes; 0 is what old converters wrote.
    stated = op.integer("DepthMultiplier")
    if stated not in (0, multiplier):
        raise op.damaged(f"its DepthMultiplier is {stated}, but its shapes say {multiplier}")
    bias = bias_of(op, weights.shape[3])
    attributes = _geometry(op, x, weights, out, multiplier)
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


def _geometry(
    op: SourceOperator, x: Tensor, weights: Tensor, out: Tensor, depth_multiplier: int
) -> Convolution:
    strides = (op.positive("StrideH"), op.positive("StrideW"))
    dilations = (op.positive("DilationHFactor"), op.positive("DilationWFactor"))
    window = (
        (weights.shape[1] - 1) * dilations[0] + 1,
        (weights.shape[2] - 1) * dilations[1] + 1,
    )
    padding = padding_of(op, x, window, strides)
    return Convolution(strides, dilations, padding, clamp_of(op, out), depth_multiplier)


def import_fully_connected(op: SourceOperator) -> Operator:
    quantized(op, op.input(0))
    weights, out = weights_of(op, 0, rank=2), quantized(op, op.output())
    if op.integer("WeightsFormat") != 0:
        raise op.unsupported("its weights are shuffled; only the default format is supported")
    bias = bias_of(op, weights.shape[0])
    return made(op, (op.inputs[0], op.inputs[1], bias), FullyConnected(clamp_of(op, out)))


def import_pool(op: SourceOperator) -> Operator:
    x, out = quantized(op, op.input(0), 4), quantized(op, op.output(), 4)
    if (
        zero_point_of(x) != zero_point_of(out)
        or abs(scale_of(x) - scale_of(out)) > _POOL_SCALE_TOLERANCE
    ):
        raise op.unsupported("its input and output are quantized differently; they must be equal")
    window = (op.positive("FilterHeight"), op.positive("FilterWidth"))
    strides = (op.positive("StrideH"), op.positive("StrideW"))
    padding = padding_of(op, x, window, strides)
    return made(op, op.inputs[:1], Pool(window, strides, padding, clamp_of(op, out)))
