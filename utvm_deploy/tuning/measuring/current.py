"""Which trials in a records file are of the C that today's generators emit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache

from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.records import NO_CODE, EmittedCode, Record
from utvm_deploy.records.candidate import Candidate, is_of_backend
from utvm_deploy.tuning.measuring.workload import Work

log = logging.getLogger(__name__)

_CACHED = 1 << 16


@lru_cache(_CACHED)
def code_of(work: Work, core: str, candidate: Candidate) -> str:
    """The digest of a candidate's C as it is emitted today; ``NO_CODE`` if there is none."""
    try:
        _, function = candidate_function(work.graph, work.operator, core, candidate)
    except Exception as error:
        # A generator, or TVM, may raise anything.
        log.debug("no code for %s: %s", candidate.label, error)
        return NO_CODE
    return record_code(function)


def current(
    work: Work, records: Sequence[Record], core: str, codes: Mapping[str, str] | None = None
) -> list[Record]:
    """Those of ``records`` that are of today's code; all are of one kernel and setting.

    Emitting C takes a while for each candidate. So the default and the fastest are checked first,
    and the others only if one of these differs. ``codes`` has those of backends' calls, by family.
    """
    known = [record for record in records if _may_be_current(record, codes or {})]
    ours = [record for record in known if not is_of_backend(record.candidate.family)]
    right = [record for record in ours if record.measurement.is_ok]
    fastest = sorted(right, key=lambda record: record.measurement.ticks_min)[:1]
    sample = [*(record for record in right if record.is_default), *fastest] or ours[:1]
    if all(_is_emitted(work, record, core) for record in sample):
        return known
    return [one for one in known if one not in ours or _is_emitted(work, one, core)]


def _may_be_current(record: Record, codes: Mapping[str, str]) -> bool:
    if is_of_backend(record.candidate.family):
        return record.code == codes.get(record.candidate.family)
    return EmittedCode().agrees(record.kernel.key, record.candidate, record.code)


def _is_emitted(work: Work, record: Record, core: str) -> bool:
    return record.code == code_of(work, core, record.candidate)
