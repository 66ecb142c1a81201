"""What passes over weights, strips and a data cache cost, estimated by the table of a core.

A kernel with scratch gathers windows of as many pixels as its scratch holds, and then goes through
all weights. So there are about ``2 MACs / (channels * scratch)`` such passes. A pass reads each
weight once more, and begins each pair of output channels again.

Records are measured with scratch in tightly coupled RAM. Where the arena is behind a data cache,
scratch of more than half of the cache is evicted before the next pair of channels reads it. Then
each line of 32 MACs is a miss.
"""

from __future__ import annotations

import math

from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.reading import reading_of
from utvm_deploy.targets.contract.costs import CostTable

#: Shares of the cache: with scratch up to the first, hardly any line is a miss; from the second on,
#: nearly each. Counted on an emulated core with 4 KB: 3,088 bytes have a third of the misses, 4,624
#: bytes three quarters, 6,160 bytes nine tenths.
NO_MISSES, ALL_MISSES = 0.5, 1.25
#: Kernels without scratch keep this many bytes in registers and on the stack.
LEAST_SCRATCH = 192


def strip_cycles(graph: Graph, operator: Operator, table: CostTable) -> float:
    """About how many more cycles an operator takes for each strip of rows."""
    return table.per_call + pass_cycles(graph, operator, table)


def pass_cycles(graph: Graph, operator: Operator, table: CostTable) -> float:
    """The cycles of reading all weights of a layer once; 0: it has none."""
    number = operator.inputs[1] if len(operator.inputs) > 1 else None
    weights = None if number is None else graph.tensors[number].data
    channels = (graph.tensors[operator.outputs[0]].shape or (1,))[-1]  # a scalar has one
    if weights is None or not channels:
        return 0.0
    times = table.depthwise_pass if operator.kind == "DEPTHWISE_CONV_2D" else 1.0
    return float(times * (table.per_weight * weights.size + table.per_channel * channels))


def missed_share(size: int, cache_bytes: int) -> float:
    """The share of ``size`` bytes that misses when they are read again and again."""
    share = (size / cache_bytes - NO_MISSES) / (ALL_MISSES - NO_MISSES)
    return min(max(share, 0.0), 1.0)


def weight_passes(graph: Graph, step: Step, scratch_bytes: int) -> float:
    """How often a layer goes through its weights in a run, about; at least once."""
    channels = graph.tensors[step.operator.outputs[0]].shape[-1:]
    windows = 2 * step.call.macs / max(math.prod(channels), 1) / windows_per_column(graph, step)
    return max(windows / max(scratch_bytes, LEAST_SCRATCH), 1.0)


def windows_per_column(graph: Graph, step: Step) -> float:
    """How many windows of a convolution read one gathered column."""
    attributes, known = step.operator.attributes, reading_of(step.call.kernel).windows_per_column
    number = step.operator.inputs[1] if len(step.operator.inputs) > 1 else None
    if not isinstance(attributes, Convolution):
        return 1.0
    if step.operator.kind != "CONV_2D" or number is None:
        return 1.0
    if known is not None:
        return known
    width = graph.tensors[number].shape[2]
    return max(width / attributes.strides[1], 1.0)


def moving_cycles(size: int, table: CostTable) -> float:
    """About how many cycles MOVE takes for ``size`` bytes."""
    return table.per_call + table.per_moved_byte * size
