"""What is proposed for one kernel besides its listed candidates.

First come schedules with tensor intrinsics. Then TVM's sketches with these intrinsics and its
template-free sketches take turns.
"""

from __future__ import annotations

from utvm_deploy.base.errors import CompileError
from utvm_deploy.intrinsics.space import sketched
from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.portable.schedules.template_free import searchable
from utvm_deploy.kernels.portable.schedules.tensorized import tensorized_candidates
from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.searching.evolution import Evolution
from utvm_deploy.tuning.searching.search_spaces import TensorSpace


class Sketches:
    """Proposals for a kernel of int8; equal seeds propose the same."""

    def __init__(self, kernel: OwnKernel, family: str, seed: int) -> None:
        self._kernel = kernel
        self._family = family
        self._seed = seed
        self._listed = list(tensorized_candidates(kernel, family)) if family else []
        self._known: list[tuple[Candidate, Measurement]] = []
        # Made when they are first asked, which takes a while; many kernels never need them.
        self._searches: list[Evolution] | None = None

    def propose(self) -> list[Candidate]:
        """Some that it did not propose before; none if it finds no more."""
        if self._listed:
            found, self._listed = self._listed, []
            return found
        if self._searches is None:
            self._searches = self._made()
        while self._searches:
            search = self._searches.pop(0)
            proposed = search.propose()
            if proposed:
                self._searches.append(search)
                return proposed
        return []

    def learn(self, candidate: Candidate, measurement: Measurement) -> None:
        """What a candidate took."""
        if self._searches is None:
            self._known.append((candidate, measurement))
        for search in self._searches or ():
            search.learn(candidate, measurement)

    def _made(self) -> list[Evolution]:
        searches = [Evolution(self._kernel, self._seed)]
        if self._family and _has_sketches(self._kernel, self._family):
            space = TensorSpace(self._kernel, self._family)
            searches.insert(0, Evolution(self._kernel, self._seed, space))
        for candidate, measurement in self._known:
            for search in searches:
                search.learn(candidate, measurement)
        return searches


def _has_sketches(kernel: OwnKernel, family: str) -> bool:
    try:
        return bool(sketched(searchable(kernel), family))
    except CompileError:  # the intrinsics do not fit
        return False
