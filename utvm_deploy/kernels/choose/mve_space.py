"""What can be chosen in the Helium kernels: how many pixels' windows are gathered at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.records.candidate import Candidate

_PIXELS = (3, 6, 12, 24, 48)


def convolutions(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Candidates for a convolution, the default first."""
    default = Candidate("mve")
    try:
        kernel = lower(graph, operator, core, default).kernel
    except UnsupportedOperator:
        return ()
    if not isinstance(kernel, GatheredConv2D) or not kernel.is_gathered:
        return (default,)
    others = (Candidate.of("mve", pixels=pixels) for pixels in _PIXELS if pixels != kernel.pixels)
    return (default, *others)


MVE_SPACES: Mapping[str, Callable[[Graph, Operator, str], tuple[Candidate, ...]]] = {
    "CONV_2D": convolutions,
    "DEPTHWISE_CONV_2D": convolutions,
}
