"""Whether operators are fused into one call, or stay apart because tuning found that faster.

Records know fused operators by the call's kernel. One record has what the call took in its model.
Another one, with the choice ``chain=apart``, has what the operators took there one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.records import Record, Records
from utvm_deploy.records.candidate import Candidate


def fused_and_apart(backend: Backend) -> tuple[Candidate, Candidate]:
    """The call of the fused operators, and the operators apart."""
    return Candidate(backend.family), Candidate.of(backend.family, chain="apart")


@dataclass(frozen=True, eq=False)
class ChainRecords:
    """What records say of a backend's fused operators on a core, at one level of the C compiler."""

    backend: Backend
    core: str
    records: Records | None = None
    optimization_flag: str = ""

    def why_apart(self, graph: Graph, fused: Operator) -> str:
        """Why fused operators stay apart, in a phrase; empty if they do not."""
        whole, apart = (self._newest(graph, fused, one) for one in fused_and_apart(self.backend))
        if whole is None:
            return ""
        if not whole.measurement.is_ok:
            return f"the fused call met {whole.measurement.error!r} when it was tuned"
        if apart is None or apart.setting != whole.setting or not apart.measurement.is_ok:
            return ""
        ticks, others, unit = (
            *(one.measurement.ticks_min for one in (whole, apart)),
            whole.setting.unit,
        )
        if others > ticks:
            return ""
        return f"the fused call took {ticks:,} {unit}, the separate operators {others:,}"

    def _newest(self, graph: Graph, fused: Operator, candidate: Candidate) -> Record | None:
        key = identity_of(graph, fused).key
        found: Iterable[Record] = (
            record
            for record in self.records or ()
            if record.kernel.key == key
            and record.candidate == candidate
            and record.code == code_of_backend(self.backend)
            and record.setting.core == self.core
            and record.setting.optimization_flag == self.optimization_flag
            and self.records is not None
            and self.records.is_of_today(record.setting)
        )
        return max(found, key=lambda record: record.time, default=None)
