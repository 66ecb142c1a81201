"""Shipped records get today's digest, and today's cycles only where somebody asks for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("tune", "replay")]
import recount  # noqa: E402
from count_ticks import Counted  # noqa: E402
from emission import Emitted  # noqa: E402

from utvm_deploy.compiler.lowering.code_digest import code_digest  # noqa: E402
from utvm_deploy.compiler.planning.decision import shipped_records  # noqa: E402
from utvm_deploy.records import Measurement, Record, read_records  # noqa: E402

CORE = "cortex-m4"
#: Cycles of both trees, and of what each is counted, by record.
Counts = dict[Record, tuple[int | None, int | None]]


def emitted(record: Record) -> Emitted:
    """What today's tree emits for a record."""
    name = recount.name_of(record)
    return Emitted(name, (f"void f(void) {{ {len(name)}; }}\n",), "f")


def relabelled(record: Record, ticks: int = 0) -> Record:
    """The record with the digest of that, so many ticks more, and today's sizes."""
    ticks += record.measurement.ticks_min
    return replace(
        record,
        code=code_digest(emitted(record).code()),
        measurement=Measurement(ticks, float(ticks)),
        code_bytes=70,
        scratch_bytes=80,
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[Record]]]:
    """Recounts a file of records, of which some are emitted, by counts that are given."""

    def run(
        records: list[Record], known: list[Record], counts: Counts, *, writes_counts: bool = False
    ) -> tuple[int, list[Record]]:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(f"{one.to_line()}\n" for one in records))
        asked = [[one.kernel.key, one.candidate.to_json()] for one in counts]

        def before(revision: str, program: Path, core: str, question: object) -> list[int | None]:
            assert (revision, question) == ("before", asked)
            return [old for old, _ in counts.values()]

        def now(core: str, question: object) -> Iterator[Counted | None]:
            assert question == asked
            for _, new in counts.values():
                yield Counted(new, 70, 80) if new is not None else None

        monkeypatch.setattr(recount, "records_file", lambda core: path)
        monkeypatch.setattr(recount, "emit_records", lambda core: map(emitted, known))
        monkeypatch.setattr(recount, "emitted_by", lambda *_: [])
        monkeypatch.setattr(recount, "asked", before)
        monkeypatch.setattr(recount, "count", now)
        stale = recount.recount(CORE, "before", writes_counts=writes_counts)
        return stale, list(read_records(path))

    return run


def test_equal_counts_alone_bring_the_new_digest(
    run: Callable[..., tuple[int, list[Record]]], capsys: pytest.CaptureFixture[str]
) -> None:
    same, slower, unknown, current = list(shipped_records(CORE))[:4]
    current = replace(current, code=relabelled(current).code)
    counts: Counts = {same: (100, 100), slower: (200, 201), unknown: (None, None)}
    records = [same, slower, unknown, current]
    stale, after = run(records, [same, slower, current], counts)
    assert stale == 2
    assert after == [relabelled(same), slower, unknown, current]
    told = capsys.readouterr().out
    assert "1 records have today's code now, 2 are stale" in told
    assert f"{recount.name_of(slower)[7:]}: 200 before, 201 now (+0.50 %)" in told


def test_differences_are_added_where_counts_are_written(
    run: Callable[..., tuple[int, list[Record]]],
) -> None:
    by_kernel: dict[str, list[Record]] = {}
    for one in shipped_records(CORE):
        by_kernel.setdefault(one.kernel.key, []).append(one)
    first, second = next(records[:2] for records in by_kernel.values() if len(records) > 1)
    less = first.measurement.ticks_min - second.measurement.ticks_min - 1
    counts: Counts = {first: (1000, 1000), second: (10**6, 10**6 + less)}
    stale, after = run([first, second], [first, second], counts, writes_counts=True)
    assert stale == 0
    # The faster one comes first now.
    assert after == [relabelled(second, less), relabelled(first)]


def test_kernels_whose_fastest_record_takes_other_cycles_are_named(
    run: Callable[..., tuple[int, list[Record]]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = list(shipped_records(CORE))[:2]
    counts: Counts = {first: (1000, 1020), second: (1000, 1005)}
    run([first, second], [first, second], counts)
    told = capsys.readouterr().out
    assert f"{CORE}: +1.250 % cycles on average, from +0.50 to +2.00 %" in told
    assert f"{first.kernel.key}: the fastest takes 1000 before, 1020 now" in told
    assert f"{second.kernel.key}: the fastest" not in told
