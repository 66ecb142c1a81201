"""Which layers a backend does: all that it covers, but those where tuning found ours better.

A record of the backend's family says what its call took. Layers without one are the backend's.
Where its output was wrong, or ours took no longer in the same circumstances, the layer is ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from utvm_deploy.backends.asking import built
from utvm_deploy.backends.interface import Backend, Match, why_not_on
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.records import RECORD, Record, Records

_DIGEST_DIGITS = 12


def code_of_backend(backend: Backend) -> str:
    """What a record of a backend's call keeps as ``code``: a digest of the backend's code.

    The Python file of a plug-in counts, too: it has the statements that call the C.
    """
    digest = backend.digest
    if backend.python_digest:
        digest = hashlib.sha256(f"{digest} {backend.python_digest}".encode()).hexdigest()
    return digest[:_DIGEST_DIGITS]


def call_of(backend: Backend, graph: Graph, operator: Operator, core: str) -> KernelCall | str:
    """The backend's call for one operator, or a phrase that says why there is none."""
    pattern = backend.pattern(operator.kind)
    if pattern is None or isinstance(operator.attributes, External):
        return f"no call of {backend.name} does {operator.kind}"
    if why := why_not_on(backend, core):
        return why
    return built(backend, pattern, Match(graph, (operator,), core))


class Either:
    """Gives an operator's call: the backend's, or what ``ours`` gives."""

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        ours: Callable[[Operator], KernelCall],
        core: str,
        records: Records | None,
        optimization_flag: str,
    ) -> None:
        self._graph = graph
        self._backend = backend
        self._ours = ours
        self._core = core
        # Kernel -> what was measured of it with this backend and these kernels, newest last.
        self._records: dict[str, list[Record]] = {}
        for record in records or ():
            assert records is not None
            if record.candidate.family == backend.family:
                is_of_code = record.code == code_of_backend(backend)
                is_current = is_of_code and records.is_of_today(record.setting)
            else:
                is_current = records.is_current(record)
            is_of_level = record.setting.optimization_flag == optimization_flag
            if is_current and is_of_level and record.setting.core == core:
                self._records.setdefault(record.kernel.key, []).append(record)

    def __call__(self, operator: Operator) -> KernelCall:
        if isinstance(operator.attributes, External):
            return lower(self._graph, operator, self._core)  # which is the backend's call
        # The backend takes the arguments of the plain kernel.
        theirs = call_of(self._backend, self._graph, operator, self._core)
        if isinstance(theirs, str):
            return replace(self._ours(operator), why_not=theirs)
        known = self._records.get(identity_of(self._graph, operator).key, [])
        family = self._backend.family
        measured = [record for record in known if record.candidate.family == family]
        if not measured:
            return theirs
        assert isinstance(theirs.kernel, LibraryKernel)
        why = _why_ours(measured[-1], known)
        if why:
            why = f"{theirs.kernel.function} of {self._backend.name} {why} when it was tuned"
            return replace(self._ours(operator), why_not=why)
        return replace(theirs, origin=RECORD)


def _why_ours(theirs: Record, known: list[Record]) -> str:
    """What speaks against the backend's call; nothing if it is the better one."""
    if not theirs.measurement.is_ok:
        return f"met {theirs.measurement.error!r}"
    ours = [
        record.measurement.ticks_min
        for record in known
        if record.candidate.family != theirs.candidate.family
        and record.setting == theirs.setting
        and record.measurement.is_ok
    ]
    ticks, unit = theirs.measurement.ticks_min, theirs.setting.unit
    if ours and min(ours) <= ticks:
        return f"took {ticks:,} {unit}, ours {min(ours):,},"
    return ""
