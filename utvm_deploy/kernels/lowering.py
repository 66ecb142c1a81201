"""Operator -> kernel call: the table of what can be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.conv2d import lower_conv2d
from utvm_deploy.kernels.fully_connected import lower_fully_connected

Lowering = Callable[[Graph, Operator], KernelCall]

LOWERINGS: Mapping[str, Lowering] = {
    "CONV_2D": lower_conv2d,
    "FULLY_CONNECTED": lower_fully_connected,
}


def lower(graph: Graph, operator: Operator) -> KernelCall:
    """The kernel that does what ``operator`` does, and its arguments in this graph."""
    lowering = LOWERINGS.get(operator.kind)
    if lowering is None:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedOperator(f"no kernel for operator {operator.kind}; there are {known}")
    return lowering(graph, operator)
