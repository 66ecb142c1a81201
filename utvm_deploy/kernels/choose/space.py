"""Every way to compute an operator on a core: what the tuner chooses from.

A family's row maps an operator's kind to the function that lists its candidates, what the family
would choose by itself first. A kind without a function has that one candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.dsp_space import DSP_SPACES
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.choose.mve_space import MVE_SPACES
from utvm_deploy.kernels.choose.thumb_space import THUMB_SPACES
from utvm_deploy.kernels.contract.call import LibraryKernel, OwnKernel
from utvm_deploy.kernels.portable.loop_shapes import generic_space
from utvm_deploy.kernels.portable.template_free import sketches
from utvm_deploy.records.candidate import GENERIC, Candidate

# A row of one family.
Space = Callable[[Graph, Operator, str], tuple[Candidate, ...]]

#: Family -> operator's kind -> its candidates. They may be () where the family has no kernel. The
#: generic family has the same rule for every kind: see ``chosen``.
SPACES: Mapping[str, Mapping[str, Space]] = {
    "dsp": DSP_SPACES,
    "mve": MVE_SPACES,
    "thumb": THUMB_SPACES,
}


def space(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Every candidate for ``operator`` on ``core``; first what is taken untuned."""
    found: list[Candidate] = []
    for family in families_for(core):
        if family == GENERIC:
            # Beside a better family the plain one is there to compare with.
            generic = (Candidate(GENERIC),) if found else generic_space(lower(graph, operator))
            found.extend(generic)
            continue
        listed = SPACES.get(family, {}).get(operator.kind)
        candidates = listed(graph, operator, core) if listed else (Candidate(family),)
        if candidates and _has_kernel(graph, operator, core, family):
            found.extend(candidates)
    default = lower(graph, operator, core).family
    # What is taken untuned comes first, also where that is the plain kernel.
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


def _has_kernel(graph: Graph, operator: Operator, core: str, family: str) -> bool:
    """Whether the family has a kernel for just this operator."""
    try:
        lower(graph, operator, core, Candidate(family))
    except UnsupportedOperator:
        return False
    return True
