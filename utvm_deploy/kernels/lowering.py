"""Operator -> kernel call: the table of what can be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from utvm_deploy.cores.core import CORES
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.conv2d import lower_conv2d
from utvm_deploy.kernels.depthwise import lower_depthwise
from utvm_deploy.kernels.dsp.lowering import DSP_LOWERINGS
from utvm_deploy.kernels.elementwise import (
    lower_add,
    lower_dequantize,
    lower_quantize,
    lower_relu,
)
from utvm_deploy.kernels.fully_connected import lower_fully_connected
from utvm_deploy.kernels.mean import lower_mean
from utvm_deploy.kernels.movement import lower_pad, lower_reshape
from utvm_deploy.kernels.pool import lower_pool
from utvm_deploy.kernels.softmax import lower_softmax

#: Stands for every core: the kernels in plain C.
GENERIC = "generic"

Lowering = Callable[[Graph, Operator], KernelCall]

LOWERINGS: Mapping[str, Lowering] = {
    "ADD": lower_add,
    "AVERAGE_POOL_2D": lower_pool,
    "CONV_2D": lower_conv2d,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "DEQUANTIZE": lower_dequantize,
    "FULLY_CONNECTED": lower_fully_connected,
    "MAX_POOL_2D": lower_pool,
    "MEAN": lower_mean,
    "PAD": lower_pad,
    "QUANTIZE": lower_quantize,
    "RELU": lower_relu,
    "RELU6": lower_relu,
    "RESHAPE": lower_reshape,
    "SOFTMAX": lower_softmax,
}


def lower(graph: Graph, operator: Operator, core: str = GENERIC) -> KernelCall:
    """The kernel that does what ``operator`` does, and its arguments in this graph.

    ``core`` names the core whose kernels to use where there are any for the case.
    """
    lowering = LOWERINGS.get(operator.kind)
    if lowering is None:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedOperator(f"no kernel for operator {operator.kind}; there are {known}")
    call = lowering(graph, operator)
    faster = DSP_LOWERINGS.get(operator.kind) if core in CORES and CORES[core].dsp else None
    if faster is None:
        return call
    found = faster(graph, operator, call, core)
    return replace(call, why_not=found) if isinstance(found, str) else found
