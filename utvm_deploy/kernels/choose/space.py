"""The candidates of an operator on a core, from which the tuner chooses."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import candidates_in, families_for, lower
from utvm_deploy.kernels.contract.call import LibraryKernel, OwnKernel
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.portable.template_free import sketches
from utvm_deploy.records.candidate import GENERIC, Candidate


def space(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Every candidate for ``operator`` on ``core``; those of the default's family come first."""
    layer = Layer(graph, operator, core, lower(graph, operator))
    found: list[Candidate] = []
    for family in families_for(core):
        # If there is a better family, only the portable kernel's default is compared with it.
        has_better = family == GENERIC and bool(found)
        found += (Candidate(GENERIC),) if has_better else candidates_in(family, layer)
    # A family may have candidates and still leave the default to the portable kernel.
    default = lower(graph, operator, core).family
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.family != default))


def free_kernel(
    graph: Graph, operator: Operator, candidates: Sequence[Candidate]
) -> OwnKernel | None:
    """The kernel whose template-free space is searched; None if another family has candidates."""
    if any(candidate.family != GENERIC for candidate in candidates):
        return None
    kernel = lower(graph, operator).kernel
    assert not isinstance(kernel, LibraryKernel)
    return kernel if sketches(kernel) else None
