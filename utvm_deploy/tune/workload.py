"""What there is to tune: the distinct kernels of models, and everything each could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from utvm_deploy.candidate import Candidate
from utvm_deploy.compiler.plan import is_view
from utvm_deploy.errors import TuneError
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.identity import identity_of
from utvm_deploy.kernels.space import space
from utvm_deploy.records import KernelIdentity


@dataclass(frozen=True, eq=False)
class Work:
    """One kernel to tune; ``operator`` is the first layer that needs it and lends its tables."""

    kernel: KernelIdentity
    graph: Graph = field(repr=False)
    operator: Operator = field(repr=False)
    candidates: tuple[Candidate, ...] = field(repr=False)  # the default first
    layers: int  # how many layers of all models need it

    @property
    def default(self) -> Candidate:
        """What the best family chooses by itself."""
        return self.candidates[0]


def workload(graphs: Sequence[Graph], core: str) -> tuple[Work, ...]:
    """The kernels of simplified graphs, in the order in which layers need them."""
    found: dict[str, Work] = {}
    for graph in graphs:
        for operator in graph.operators:
            if is_view(graph, operator):
                continue
            kernel = identity_of(graph, operator)
            if kernel.key in found:
                work = found[kernel.key]
                found[kernel.key] = replace(work, layers=work.layers + 1)
            else:
                candidates = space(graph, operator, core)
                found[kernel.key] = Work(kernel, graph, operator, candidates, 1)
    if not found:
        raise TuneError("the model has no kernel to tune; all of its operators only rename data")
    return tuple(found.values())
