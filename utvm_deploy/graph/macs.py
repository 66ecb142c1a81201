"""Multiply-accumulate operations of an operator, for reports and cycles per MAC."""

from __future__ import annotations

import math

from utvm_deploy.graph.attributes import BatchMatmul, CallTir
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.shapes import input_tensor


def macs(graph: Graph, operator: Operator) -> int:
    """Multiplications of what is summed up: by weights, or in BATCH_MATMUL; else 0.

    Padded positions count, as is usual, although no kernel computes them.
    """
    outputs = math.prod(graph.tensors[operator.outputs[0]].shape)
    if isinstance(operator.attributes, BatchMatmul):
        left = input_tensor(graph, operator, 0).shape
        return outputs * (left[-2] if operator.attributes.left_turned else left[-1])
    if isinstance(operator.attributes, CallTir):
        return operator.attributes.macs
    if operator.kind == "TRANSPOSE_CONV":
        weights = input_tensor(graph, operator, 1).shape
        image = input_tensor(graph, operator, 0).shape
        return math.prod(image) * math.prod(weights[:3])
    if operator.kind == "CONV_3D":
        return outputs * math.prod(input_tensor(graph, operator, 1).shape[:4])
    if operator.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    weights = input_tensor(graph, operator, 1).shape
    if operator.kind == "DEPTHWISE_CONV_2D":
        return outputs * weights[1] * weights[2]
    return outputs * math.prod(weights[1:])


def total_macs(graph: Graph) -> int:
    """Multiply-accumulate operations of one run of the model."""
    return sum(macs(graph, operator) for operator in graph.operators)
