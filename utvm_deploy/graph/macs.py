"""Multiply-accumulate operations of an operator, for reports and cycles per MAC."""

from __future__ import annotations

import math

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.shapes import input_tensor


def macs(graph: Graph, operator: Operator) -> int:
    """Multiplications of a weight with an activation; 0 for operators without weights.

    Padded positions count, as is usual, although no kernel computes them.
    """
    if operator.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    outputs = math.prod(graph.tensors[operator.outputs[0]].shape)
    weights = input_tensor(graph, operator, 1).shape
    if operator.kind == "DEPTHWISE_CONV_2D":
        return outputs * weights[1] * weights[2]
    return outputs * math.prod(weights[1:])


def total_macs(graph: Graph) -> int:
    """Multiply-accumulate operations of one run of the model."""
    return sum(macs(graph, operator) for operator in graph.operators)
