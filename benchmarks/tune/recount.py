"""Give shipped records the digest of today's C where that takes the same cycles as before.

    python benchmarks/tune/recount.py --against REVISION [--core CORE...]

A kernel whose driver or generator changed has stale records. This command finds them by emitting
the C of every record. It counts the cycles of their kernels on the emulated board twice: with the
code of the revision, and with today's. Records with equal counts get today's digest. The others
stay as they are: tune these kernels again (``default_records.py``). A record whose C is the same in
both trees is not counted: only the digest is made in another way now.

Kernels are found in the zoo, in models/ and in the folder that UTVM_SHARED names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "replay"))
from emission import RECORD, cores, emit_records  # noqa: E402
from replay_command import answer_of, asked, emitted_by  # noqa: E402

from utvm_deploy.base.files import write_text  # noqa: E402
from utvm_deploy.base.paths import records_file  # noqa: E402
from utvm_deploy.compiler.code_digest import code_digest  # noqa: E402
from utvm_deploy.records import Record, read_records  # noqa: E402

PROGRAM = ROOT / "benchmarks" / "tune" / "count_ticks.py"


def recounted(
    records: Sequence[Record],
    codes: Sequence[str | None],
    before: Sequence[int | None],
    after: Sequence[int | None],
) -> tuple[list[Record], list[str]]:
    """The records with today's codes where both counts are equal, and what is told of the others.

    ``codes`` has today's; None where no model has the kernel.
    """
    found, told = [], []
    for record, code, old, new in zip(records, codes, before, after, strict=True):
        if code is not None and old is not None and old == new:
            found.append(replace(record, code=code))
            continue
        found.append(record)
        told.append(f"{record.kernel.key} {record.candidate.label}: {old} before, {new} now")
    return found, told


def recount(core: str, revision: str) -> int:
    """One core's file; returns how many records stay stale."""
    path = records_file(core)
    known = read_records(path)
    today = {one.name: code_digest(one.code()) for one in emit_records(core)}
    codes = {one: today.get(f"{RECORD} {one.kernel.key} {one.candidate.label}") for one in known}
    stale = [record for record, code in codes.items() if code != record.code]
    if not stale:
        print(f"{core}: the code of all {len(known)} records is today's")
        return 0
    names = [f"{RECORD} {one.kernel.key} {one.candidate.label}" for one in stale]
    older = {one.name: code_digest(one.code()) for one in emitted_by(revision, core, names)}
    same = {one for one, name in zip(stale, names, strict=True) if older.get(name) == codes[one]}
    new = {one: replace(one, code=codes[one] or "") for one in same}
    stale = [one for one in stale if one not in same]
    print(f"{core}: the C of {len(same)} records is the same in both", flush=True)
    told: list[str] = []
    if stale:
        question = [[one.kernel.key, one.candidate.to_json()] for one in stale]
        print(f"{core}: counting {len(stale)} of {len(known)} kernels twice", flush=True)
        before = asked(revision, PROGRAM, core, question)
        after = answer_of(ROOT, PROGRAM, core, question)
        found, told = recounted(stale, [codes[one] for one in stale], before, after)
        new.update(zip(stale, found, strict=True))
    lines = [new.get(one, one).to_line() for one in known]
    lines += [one.to_line() for one in known.model_records]
    write_text(path, "".join(f"{line}\n" for line in lines))
    print(f"{core}: {len(new) - len(told)} records have today's code now, {len(told)} are stale")
    for line in told:
        print(f"    {line}")
    return len(told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default="HEAD", metavar="REVISION", help="HEAD if not given")
    names = [core for core in cores() if core != "host"]
    parser.add_argument("--core", action="append", choices=names, help="all if not given")
    options = parser.parse_args()
    return 1 if sum(recount(core, options.against) for core in options.core or names) else 0


if __name__ == "__main__":
    sys.exit(main())
