"""Shipped records get today's digest only where today's C takes the cycles that it took before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("tune", "replay")]
import recount  # noqa: E402
from emission import RECORD, Emitted  # noqa: E402

from utvm_deploy.compiler.code_digest import code_digest  # noqa: E402
from utvm_deploy.compiler.decision import shipped_records  # noqa: E402
from utvm_deploy.records import Record, read_records  # noqa: E402

CORE = "cortex-m4"


def test_equal_counts_alone_bring_the_new_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same, slower, unknown, current = list(shipped_records(CORE))[:4]

    def emitted(core: str) -> Iterator[Emitted]:
        for record in (same, slower, current):
            name = f"{RECORD} {record.kernel.key} {record.candidate.label}"
            yield Emitted(name, (f"void f(void) {{ {len(name)}; }}\n",), "f")

    codes = {one.name: code_digest(one.code()) for one in emitted(CORE)}

    def code(record: Record) -> str:
        return codes[f"{RECORD} {record.kernel.key} {record.candidate.label}"]

    current = replace(current, code=code(current))
    path = tmp_path / "records.jsonl"
    written = (same, slower, unknown, current)
    path.write_text("".join(f"{one.to_line()}\n" for one in written))
    asked = []

    def count(*question: object) -> list[int | None]:
        asked.append(question)
        # The stale ones: equal, slower now, of no model that is here.
        return [100, 200, None] if question[0] == "before" else [100, 201, None]

    monkeypatch.setattr(recount, "records_file", lambda core: path)
    monkeypatch.setattr(recount, "emit_records", emitted)
    monkeypatch.setattr(recount, "asked", count)
    monkeypatch.setattr(recount, "answer_of", count)
    assert recount.recount(CORE, "before") == 2
    candidates = [[one.kernel.key, one.candidate.to_json()] for one in (same, slower, unknown)]
    assert [question[-1] for question in asked] == [candidates, candidates]
    after = list(read_records(path))
    assert after == [replace(same, code=code(same)), slower, unknown, current]
    told = capsys.readouterr().out
    assert "1 records have today's code now, 2 are stale" in told
    assert f"{slower.kernel.key} {slower.candidate.label}: 200 before, 201 now" in told
