"""Give shipped records the digest of today's C where that takes the same cycles as before.

    python benchmarks/tune/recount.py --against REVISION [--core CORE...] [--write-counts]

A kernel whose driver or generator changed has stale records. This command finds them by emitting
the C of every record. It counts the cycles of their kernels on the emulated board twice: with the
code of the revision, and with today's. Records with equal counts get today's digest. A record whose
C is the same in both trees is not counted: only the digest is made in another way now.

Records with other counts stay as they are: tune their kernels again (``default_records.py``). With
``--write-counts`` they get today's digest, and their cycles change by the difference. That is right
if all candidates of a kernel differ by the same cycles: one that has no record is not counted.

Kernels are found in the zoo, in models/ and in the folder that UTVM_SHARED names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("replay", "tune")]
from count_ticks import Counted, count  # noqa: E402
from emission import RECORD, cores, emit_records  # noqa: E402
from replay_command import asked, emitted_by  # noqa: E402

from utvm_deploy.base.files import write_text  # noqa: E402
from utvm_deploy.base.paths import records_file  # noqa: E402
from utvm_deploy.compiler.lowering.code_digest import code_digest  # noqa: E402
from utvm_deploy.records import Measurement, Record, read_records  # noqa: E402
from utvm_deploy.tuning.shipping import worth_shipping  # noqa: E402

PROGRAM = ROOT / "benchmarks" / "tune" / "count_ticks.py"
#: By which a kernel's fastest record must differ to be listed.
TELLING = 0.01


@dataclass(frozen=True)
class Recounted:
    """A record whose C changed."""

    record: Record
    code: str | None  # today's; None: no model has the kernel
    before: int | None  # ticks of the revision's C; None: it did not run
    now: Counted | None  # of today's C

    @property
    def is_equal(self) -> bool:
        """Whether both versions take the same cycles."""
        return self.now is not None and self.before == self.now.ticks

    @property
    def difference(self) -> float:
        """How many cycles more today's C takes, in percent; 0 if one of both did not run."""
        return 100 * (self.now.ticks / self.before - 1) if self.now and self.before else 0.0

    def relabelled(self, *, writes_counts: bool) -> Record | None:
        """The record of today's C; None where it stays stale.

        Its cycles change by what the counts differ. Both were made alone on the board, where tuning
        loads many candidates together, which changes what is in the caches.
        """
        if self.code is None or self.before is None or self.now is None:
            return None
        if not (self.is_equal or writes_counts):
            return None
        ticks = self.record.measurement.ticks_min + self.now.ticks - self.before
        return replace(
            self.record,
            measurement=Measurement(ticks, float(ticks)),
            code=self.code,
            code_bytes=self.now.code_bytes,
            scratch_bytes=self.now.scratch_bytes,
        )

    def __str__(self) -> str:
        now = self.now.ticks if self.now is not None else None
        name = f"{self.record.kernel.key} {self.record.candidate.label}"
        return f"{name}: {self.before} before, {now} now ({self.difference:+.2f} %)"


def recount(core: str, revision: str, *, writes_counts: bool) -> int:
    """Bring one core's file up to date; returns how many records stay stale."""
    path = records_file(core)
    known = read_records(path)
    emitted = {one.name: code_digest(one.code()) for one in emit_records(core)}
    codes = {one: emitted.get(name_of(one)) for one in known}
    stale = [record for record, code in codes.items() if code != record.code]
    if not stale:
        print(f"{core}: the code of all {len(known)} records is today's")
        return 0
    older = {
        one.name: code_digest(one.code())
        for one in emitted_by(revision, core, [name_of(one) for one in stale])
    }
    new = {
        one: replace(one, code=code)
        for one in stale
        if (code := codes[one]) is not None and older.get(name_of(one)) == code
    }
    print(f"{core}: the C of {len(new)} records is the same in both", flush=True)
    counted = [one for one in stale if one not in new]
    told: list[Recounted] = []
    if counted:
        question = [[one.kernel.key, one.candidate.to_json()] for one in counted]
        print(f"{core}: counting {len(counted)} of {len(known)} kernels twice", flush=True)
        before = asked(revision, PROGRAM, core, question)
        now = count(core, question)
        found = [
            Recounted(record, codes[record], *ticks)
            for record, *ticks in zip(counted, before, now, strict=True)
        ]
        report(core, found)
        for one in found:
            made = one.relabelled(writes_counts=writes_counts)
            if made is None:
                told.append(one)
            else:
                new[one.record] = made
    records = [new.get(one, one) for one in known]
    if writes_counts:
        records = list(worth_shipping(records))
    lines = [one.to_line() for one in records]
    lines += [one.to_line() for one in known.model_records]
    write_text(path, "".join(f"{line}\n" for line in lines))
    print(f"{core}: {len(new)} records have today's code now, {len(told)} are stale")
    for one in told:
        print(f"    {one}")
    return len(told)


def report(core: str, found: Sequence[Recounted]) -> None:
    """Print how the counts differ, of all records and of each kernel's fastest one."""
    differences = [one.difference for one in found]
    mean = sum(differences) / len(differences)
    print(
        f"{core}: {mean:+.3f} % cycles on average, "
        f"from {min(differences):+.2f} to {max(differences):+.2f} %"
    )
    for key in dict.fromkeys(one.record.kernel.key for one in found):
        some = [one for one in found if one.record.kernel.key == key]
        before = [one.before for one in some if one.before is not None]
        now = [one.now.ticks for one in some if one.now is not None]
        if before and now and abs(min(now) / min(before) - 1) > TELLING:
            print(f"    {key}: the fastest takes {min(before)} before, {min(now)} now")


def name_of(record: Record) -> str:
    """As the replay table names it."""
    return f"{RECORD} {record.kernel.key} {record.candidate.label}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default="HEAD", metavar="REVISION", help="HEAD if not given")
    names = [core for core in cores() if core != "host"]
    parser.add_argument("--core", action="append", choices=names, help="all if not given")
    parser.add_argument(
        "--write-counts",
        action="store_true",
        help="write today's cycles where they differ",
    )
    options = parser.parse_args()
    stale = [
        recount(core, options.against, writes_counts=options.write_counts)
        for core in options.core or names
    ]
    return 1 if any(stale) else 0


if __name__ == "__main__":
    sys.exit(main())
