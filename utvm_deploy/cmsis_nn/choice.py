"""Which layers the library does: all that it covers, but those where tuning found ours better.

A record of family "cmsis-nn" says what the library's call took. Layers without one are the
library's. Where its output was wrong, or ours took no longer in the same circumstances, it is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from utvm_deploy.cmsis_nn.library import CmsisNn
from utvm_deploy.cmsis_nn.lower import lower_cmsis_nn
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.records import RECORD, Record, Records
from utvm_deploy.records.candidate import CMSIS_NN

_DIGEST_DIGITS = 12


def library_code(library: CmsisNn) -> str:
    """What a record of a library's call keeps as ``code``: a digest of the library."""
    return library.digest[:_DIGEST_DIGITS]


class Either:
    """Gives an operator's call: the library's, or what ``ours`` gives."""

    def __init__(
        self,
        graph: Graph,
        library: CmsisNn,
        ours: Callable[[Operator], KernelCall],
        core: str,
        records: Records | None,
        optimization_flag: str,
    ) -> None:
        self._graph = graph
        self._library = library
        self._ours = ours
        # Kernel -> what was measured of it with this library and these kernels, newest last.
        self._records: dict[str, list[Record]] = {}
        for record in records or ():
            assert records is not None
            if record.candidate.family == CMSIS_NN:
                is_of_code = record.code == library_code(library)
                is_current = is_of_code and records.is_of_today(record.setting)
            else:
                is_current = records.is_current(record)
            is_of_level = record.setting.optimization_flag == optimization_flag
            if is_current and is_of_level and record.setting.core == core:
                self._records.setdefault(record.kernel.key, []).append(record)

    def __call__(self, operator: Operator) -> KernelCall:
        # The library takes the arguments of the plain kernel.
        theirs = lower_cmsis_nn(
            Operation(self._graph, operator), lower(self._graph, operator), self._library
        )
        if isinstance(theirs, str):
            return replace(self._ours(operator), why_not=theirs)
        known = self._records.get(identity_of(self._graph, operator).key, [])
        measured = [record for record in known if record.candidate.family == CMSIS_NN]
        if not measured:
            return theirs
        assert isinstance(theirs.kernel, LibraryKernel)
        why = _why_ours(measured[-1], known)
        if why:
            why = f"{theirs.kernel.function} of CMSIS-NN {why} when it was tuned"
            return replace(self._ours(operator), why_not=why)
        return replace(theirs, origin=RECORD)


def _why_ours(theirs: Record, known: list[Record]) -> str:
    """What speaks against the library's call; nothing if it is the better one."""
    if not theirs.measurement.is_ok:
        return f"met {theirs.measurement.error!r}"
    ours = [
        record.measurement.ticks_min
        for record in known
        if record.candidate.family != CMSIS_NN
        and record.setting == theirs.setting
        and record.measurement.is_ok
    ]
    ticks, unit = theirs.measurement.ticks_min, theirs.setting.unit
    if ours and min(ours) <= ticks:
        return f"took {ticks:,} {unit}, ours {min(ours):,},"
    return ""
