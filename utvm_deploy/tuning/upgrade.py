"""Records of version 0.2.0 get the digest of the C that is emitted today for their kernels.

That version wrote a digest of the generators' source files. Its records hold as long as
``records.emitted_code.CODES_OF_0_2_0`` has their family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy import __version__
from utvm_deploy.base.files import write_atomically
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.records import NO_CODE, ModelRecord, Record, parsed
from utvm_deploy.records.candidate import Candidate, is_of_backend
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.records.fields import line_of, object_in
from utvm_deploy.records.line import record_of
from utvm_deploy.tuning.measuring.current import code_of
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import held

#: What was done with a line, or why it stays as it is.
UPGRADED = "upgraded"
OTHER_CORE = "they are of another core"
NO_MODEL = "none of the models has their kernels"
NOT_OF_0_2_0 = "their code is not that of version 0.2.0"
NO_C = "their candidates cannot be generated any more"
UNREADABLE = "this version cannot read them"


@dataclass(frozen=True)
class Upgrade:
    """Numbers of lines."""

    counts: Mapping[str, int]

    @property
    def upgraded(self) -> int:
        """Records with a new digest."""
        return self.counts.get(UPGRADED, 0)

    @property
    def kept(self) -> Mapping[str, int]:
        """Why -> how many lines are as they were."""
        return {why: count for why, count in self.counts.items() if why != UPGRADED}


def upgrade_records(
    path: Path,
    works: Sequence[Work],
    core: str,
    *,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> Upgrade:
    """Upgrade the records of a core's kernels in a file; the others stay as they are, byte by byte.

    ``works`` are the kernels that C can be made for. The new file replaces the old one once
    it is complete. RecordsError if the file holds no records.
    """
    by_key = {work.kernel.key: work for work in works}
    counts: dict[str, int] = {}
    with held(path) as file:
        data = file.read_bytes()
        # A file of something else is refused.
        any(True for _ in parsed(path, data))
        lines = data.split(b"\n")
        for index, line in enumerate(lines):
            progress("upgrading records", index, len(lines))
            if line.strip():
                what, lines[index] = _upgraded(line, by_key, core)
                counts[what] = counts.get(what, 0) + 1
        if counts.get(UPGRADED) and not dry_run:
            write_atomically(file, lambda out: out.write(b"\n".join(lines)), keeps_mode=True)
    return Upgrade(counts)


def _upgraded(line: bytes, works: Mapping[str, Work], core: str) -> tuple[str, bytes]:
    """What was done with a line, and the line."""
    try:
        record = record_of(line)
    except ValueError:
        return UNREADABLE, line
    if record.setting.core != core:
        return OTHER_CORE, line
    if isinstance(record, ModelRecord):
        what, changes = _of_model(record, works)
    else:
        what, changes = _of_kernel(record, works)
    if what != UPGRADED:
        return what, line
    # Fields of later versions stay.
    value = {**object_in(line, "a record"), **changes, "utvm": __version__}
    try:
        return what, line_of(value).encode()
    except (ValueError, RecursionError):
        # Such a field may hold what is read and cannot be written, such as 1e999.
        return UNREADABLE, line


def _of_kernel(record: Record, works: Mapping[str, Work]) -> tuple[str, dict[str, Any]]:
    if record.code != CODES_OF_0_2_0.get(record.candidate.family):
        return NOT_OF_0_2_0, {}
    code = _code(record.kernel.key, record.candidate, record.setting.core, works)
    if code is None:
        return NO_MODEL, {}
    # What could not be generated then may have no C now, either.
    if code == NO_CODE and record.measurement.is_ok:
        return NO_C, {}
    return UPGRADED, {"code": code}


def _of_model(record: ModelRecord, works: Mapping[str, Work]) -> tuple[str, dict[str, Any]]:
    known = dict(record.codes)
    families = {candidate.family for _, candidate in record.candidates}
    of_0_2_0 = {one: CODES_OF_0_2_0.get(one) for one in families}
    if any(map(is_of_backend, families)) or known != of_0_2_0:
        return NOT_OF_0_2_0, {}
    codes: dict[str, str] = {}
    for key, candidate in record.candidates:
        code = _code(key, candidate, record.setting.core, works)
        if code is None:
            return NO_MODEL, {}
        if code == NO_CODE:
            return NO_C, {}
        codes[key] = code
    return UPGRADED, {"codes": codes}


def _code(key: str, candidate: Candidate, core: str, works: Mapping[str, Work]) -> str | None:
    work = works.get(key)
    return None if work is None else code_of(work, core, candidate)
