"""Every way to compute an operator on a core: what the tuner chooses from."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import candidates_in, families_for, lower
from utvm_deploy.kernels.contract.call import LibraryKernel, OwnKernel
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.portable.template_free import sketches
from utvm_deploy.records.candidate import GENERIC, Candidate


def space(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Every candidate for ``operator`` on ``core``; first what is taken untuned."""
    layer = Layer(graph, operator, core, lower(graph, operator))
    found: list[Candidate] = []
    for family in families_for(core):
        # Beside a better family the plain portable kernel is there to compare with.
        is_beside = family == GENERIC and bool(found)
        found += (Candidate(GENERIC),) if is_beside else candidates_in(family, layer)
    default = lower(graph, operator, core).family
    # What is taken untuned comes first, also where that is the portable kernel.
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.family != default))


def free_kernel(
    graph: Graph, operator: Operator, candidates: Sequence[Candidate]
) -> OwnKernel | None:
    """What to search without a template, beside its ``candidates``; None where a family has one."""
    if any(candidate.family != GENERIC for candidate in candidates):
        return None
    kernel = lower(graph, operator).kernel
    assert not isinstance(kernel, LibraryKernel)
    return kernel if sketches(kernel) else None
