"""What there is to tune: the distinct kernels of models, and everything each could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from utvm_deploy.backends.choice import call_of
from utvm_deploy.backends.interface import Backend
from utvm_deploy.backends.regions import is_region, partitioned
from utvm_deploy.base.errors import TuneError
from utvm_deploy.compiler.arena.plan import is_view
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import free_kernel, identity_of, space
from utvm_deploy.kernels.contract.call import KernelCall, OwnKernel
from utvm_deploy.kernels.intrinsics.facts import fitting_family
from utvm_deploy.kernels.portable.loop_shapes import searched
from utvm_deploy.records import KernelIdentity
from utvm_deploy.records.candidate import Candidate

#: Trials that a template-free space is worth where nobody says how many.
FREE_TRIALS = 64


@dataclass(frozen=True, eq=False)
class Work:
    """One kernel to tune; ``operator`` is the first layer that needs it and lends its tables."""

    kernel: KernelIdentity
    graph: Graph = field(repr=False)
    operator: Operator = field(repr=False)
    candidates: tuple[Candidate, ...] = field(repr=False)  # the default first
    layers: int  # how many layers of all models need it
    # What is searched without a template, too.
    free: OwnKernel | None = field(default=None, repr=False)
    # The family of the tensor intrinsics that are tried in this search; empty: none.
    intrinsics: str = field(default="", repr=False)
    # Whether its tables are measured in the image, in flash: nearly all candidates read the same.
    tables_in_image: bool = field(default=False, repr=False)

    @property
    def default(self) -> Candidate:
        """What the best family chooses by itself."""
        return self.candidates[0]

    @property
    def trials(self) -> int:
        """How many trials it is worth, by an estimate."""
        return len(self.candidates) + (FREE_TRIALS if self.free is not None else 0)

    def admits(self, candidate: Candidate) -> bool:
        """Whether the candidate is in the kernel's space."""
        if candidate in self.candidates:
            return True
        found = None if self.free is None else searched(self.free, candidate)
        return found is not None and not isinstance(found, str)


def workload(
    graphs: Sequence[Graph],
    core: str,
    backends: Sequence[Backend] = (),
    *,
    sketches: bool = False,
    devices: Sequence[Sequence[Backend]] = (),
) -> tuple[Work, ...]:
    """The kernels of simplified graphs, in the order in which layers need them.

    The call of each backend is one more candidate, wherever it has one. With ``sketches`` each
    kernel with a loop nest is searched without a template, too, also with tensor intrinsics.
    ``devices`` are those backends of each graph whose regions a device computes: the operators in
    these are left out.
    """
    found: dict[str, Work] = {}
    for graph, some in zip(graphs, devices or [()] * len(graphs), strict=True):
        theirs = _in_regions(graph, some, core)
        for operator in graph.operators:
            # What only a backend computes has nothing to be compared with.
            is_external = isinstance(operator.attributes, External)
            if is_external or is_view(graph, operator) or not theirs.isdisjoint(operator.sources):
                continue
            kernel = identity_of(graph, operator)
            if kernel.key in found:
                work = found[kernel.key]
                found[kernel.key] = replace(work, layers=work.layers + 1)
            else:
                candidates = space(graph, operator, core)
                free = free_kernel(graph, operator, candidates, everywhere=sketches)
                candidates += tuple(
                    Candidate(one.family)
                    for one in backends
                    if _has_call(graph, operator, core, one)
                )
                tensors = fitting_family(core) if sketches and kernel.dtype == "int8" else ""
                found[kernel.key] = Work(
                    kernel, graph, operator, candidates, 1, free, tensors, free is not None
                )
    if not found:
        other = ", or a device computes them" if any(devices) else ""
        raise TuneError(
            f"the model has no kernel to tune; all of its operators only rename data{other}"
        )
    return tuple(found.values())


def _in_regions(graph: Graph, backends: Sequence[Backend], core: str) -> frozenset[int]:
    """The file's operators that are in regions of backends."""
    merged = partitioned(graph, backends, core).operators if backends else ()
    return frozenset(source for one in merged if is_region(one) for source in one.sources)


def _has_call(graph: Graph, operator: Operator, core: str, library: Backend) -> bool:
    call = call_of(library, graph, operator, core)
    return isinstance(call, KernelCall)
