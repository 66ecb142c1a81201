"""Which tensors may share bytes, because a kernel writes over what it has read.

Each kernel gives the least distance from its output to its input (``kernels/contract/lag.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.lag import Lag, lag_of


@dataclass(frozen=True)
class Overlap:
    """Two tensors, by position in ``Graph.tensors``, that may share bytes."""

    source: int
    result: int
    lag: Lag


def overlap_of(graph: Graph, call: KernelCall) -> Overlap | None:
    """How a call's output may overlap its input; None if nothing is known of the kernel."""
    lag = lag_of(call.kernel)
    tensors = [a.tensor for a in call.arguments if isinstance(a, TensorArgument)]
    if lag is None or len(tensors) != 2 or graph.tensors[tensors[0]].data is not None:
        return None
    source, result = tensors
    # Without a limit, both may be anywhere.
    least = max(lag.least_bytes, -graph.tensors[source].size_bytes)
    return Overlap(source, result, Lag(least, lag.unit_bytes))


def may_share(call: KernelCall) -> bool:
    """Whether an output may share bytes with an input, so that neither may be ``restrict``."""
    return bool(call.in_place) or lag_of(call.kernel) is not None
