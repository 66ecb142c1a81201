"""Which layers backends compute: all that they cover, but those where tuning found ours better.

A record of a backend's family says what its call took. Where its output was wrong, or ours took no
longer in the same circumstances, it is out. Of the others, the fastest measured one computes the
layer, then the first one that was not measured, unless ours is faster by its estimate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from utvm_deploy.backends.asking import MATCH_SECONDS, asked, built, is_covered, where_of
from utvm_deploy.backends.interface import Backend, Build, Match, Pattern, why_not_on
from utvm_deploy.backends.patterns import Op, parts_of
from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.python_file import shown
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.records import RECORD, Record, Records

_DIGEST_DIGITS = 12
#: No call takes as many: more than a century of a core at 1 GHz.
_MOST_CYCLES = 10**19


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
    found = _builds(backend, graph, operator, core)
    if isinstance(found, str):
        return found
    calls = (built(backend, build, match) for build, match in found)
    why = ""
    for call in calls:
        if not isinstance(call, str):
            return call
        why = why or call
    return why or f"no call of {backend.name} does {operator.kind}"


def _builds(
    backend: Backend, graph: Graph, operator: Operator, core: str
) -> list[tuple[Build, Match]] | str:
    """What may build a call for one operator, or why nothing does."""
    patterns = [one for one in backend.patterns if not one.custom and _may_be(one, operator.kind)]
    covers, nothing = backend.covers, f"no call of {backend.name} does {operator.kind}"
    if isinstance(operator.attributes, External) or not (patterns or covers):
        return nothing
    if why := why_not_on(backend, core):
        return why
    alone = graph.replaced(operators=(operator,), outputs=operator.outputs, states=())

    def found() -> list[tuple[Build, Match]]:
        made: list[tuple[Build, Match]] = []
        for pattern in patterns:
            build = pattern.build or backend.build
            if build and (places := pattern.matches(alone, (0,))):
                named: dict[str, Operator | int] = {**places[0].tensors}
                named |= dict.fromkeys(places[0].operators, operator)
                made.append((build, Match(graph, (operator,), core, named)))
        if backend.build and covers and is_covered(backend, Operation(graph, operator)):
            made.append((backend.build, Match(graph, (operator,), core)))
        return made

    if not backend.origin:
        return found()
    return asked(backend, f"a pattern or covers for {operator.kind}", found, MATCH_SECONDS, graph)


def _may_be(pattern: Pattern, kind: str) -> bool:
    parts = (part for root in pattern.roots for part in parts_of(root))
    return any(isinstance(part, Op) and kind in part.kinds for part in parts)


#: Family and outputs of an operator -> the backend's call, or why there is none.
TheirCalls: TypeAlias = dict[tuple[Graph, str, tuple[int, ...]], KernelCall | str]


class Either:
    """Gives an operator's call: that of a backend, or what ``ours`` gives.

    ``cycles`` estimates what our call takes. ``calls`` keeps what was built.
    """

    def __init__(
        self,
        graph: Graph,
        backends: Sequence[Backend],
        ours: Callable[[Operator], KernelCall],
        cycles: Callable[[Operator, KernelCall], float],
        core: str,
        records: Records | None,
        optimization_flag: str,
        calls: TheirCalls,
    ) -> None:
        self._graph = graph
        self._calls = calls
        self._backends = backends
        self._ours = ours
        self._cycles = cycles
        self._core = core
        self._families = families = {one.family: code_of_backend(one) for one in backends}
        # Kernel -> what was measured of it with these backends and kernels, newest last.
        self._records: dict[str, list[Record]] = {}
        for record in records or ():
            assert records is not None
            if record.candidate.family in families:
                is_of_code = record.code == families[record.candidate.family]
                is_current = is_of_code and records.is_of_today(record.setting)
            else:
                is_current = records.is_current(record)
            is_of_level = record.setting.optimization_flag == optimization_flag
            if is_current and is_of_level and record.setting.core == core:
                self._records.setdefault(record.kernel.key, []).append(record)

    def __call__(self, operator: Operator) -> KernelCall:
        if isinstance(operator.attributes, External):
            return lower(self._graph, operator, self._core)  # which is the backend's call
        # Backends take the arguments of the plain kernel.
        theirs, reasons = dict[str, KernelCall](), list[str]()
        for backend in self._backends:
            key = self._graph, backend.family, operator.outputs
            if key not in self._calls:
                self._calls[key] = call_of(backend, self._graph, operator, self._core)
            call = self._calls[key]
            if isinstance(call, str):
                reasons.append(call)
            else:
                theirs[backend.family] = call
        known = self._records.get(identity_of(self._graph, operator).key, []) if theirs else []
        measured = {one.candidate.family: one for one in known if one.candidate.family in theirs}
        better: dict[str, int] = {}
        for family, record in measured.items():
            if why := _why_ours(record, known, self._families):
                kernel = theirs.pop(family).kernel
                assert isinstance(kernel, LibraryKernel)
                reasons.append(f"{kernel.function} of {kernel.backend} {why} when it was tuned")
            else:
                better[family] = record.measurement.ticks_min
        if better:
            fastest = min(better, key=lambda family: better[family])
            return replace(theirs[fastest], origin=RECORD)
        return self._unmeasured(operator, theirs, reasons)

    def _unmeasured(
        self, operator: Operator, theirs: Mapping[str, KernelCall], reasons: list[str]
    ) -> KernelCall:
        """The call of the first backend whose estimate is not above ours, or our call."""
        ours: KernelCall | None = None
        for backend in self._backends:
            if backend.family not in theirs:
                continue
            estimate, match = backend.estimate, Match(self._graph, (operator,), self._core)
            if estimate is None:
                return theirs[backend.family]
            ours = ours or self._ours(operator)
            gain = estimated(backend, match, self._cycles(operator, ours))
            if not isinstance(gain, str):
                return theirs[backend.family]
            reasons.append(gain)
        return replace(ours or self._ours(operator), why_not="; ".join(dict.fromkeys(reasons)))


def estimated(backend: Backend, match: Match, ours: float) -> float | str:
    """The cycles that a call saves by the backend's estimate, or why it saves none.

    0 if there is no estimate.
    """
    estimate = backend.estimate
    if estimate is None:
        return 0.0
    what = f"estimate for {where_of(match)}"
    theirs = asked(backend, what, lambda: estimate(match), MATCH_SECONDS)
    if theirs is None:
        return 0.0
    is_number = isinstance(theirs, int | float | np.number) and not isinstance(theirs, bool)
    if not is_number or not 0 <= theirs <= _MOST_CYCLES:
        raise PluginError(
            f"{backend.origin}: {what} returned {shown(theirs)}; return a number of cycles, or None"
        )
    if theirs < ours:
        return ours - float(theirs)
    return f"by estimates {backend.name} takes {theirs:,.0f} cycles, and ours {ours:,.0f}"


def _why_ours(theirs: Record, known: list[Record], families: Collection[str]) -> str:
    """What speaks against the backend's call; nothing if it is the better one."""
    if not theirs.measurement.is_ok:
        return f"met {theirs.measurement.error!r}"
    ours = [
        record.measurement.ticks_min
        for record in known
        if record.candidate.family not in families
        and record.setting == theirs.setting
        and record.measurement.is_ok
    ]
    ticks, unit = theirs.measurement.ticks_min, theirs.setting.unit
    if ours and min(ours) <= ticks:
        return f"took {ticks:,} {unit}, ours {min(ours):,},"
    return ""
