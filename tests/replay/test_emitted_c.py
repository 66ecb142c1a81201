"""The C of every shipped record and of whole models is what the table of digests says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "replay"))
from digest_table import differing, digests, listed, parsed, table_file, written  # noqa: E402
from emission import RECORD, absent, cores, emit  # noqa: E402

from utvm_deploy.compiler.planning.decision import shipped_records  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("core", cores())
def test_the_emitted_c_is_that_of_the_table(core: str) -> None:
    known = parsed(table_file(core).read_text())
    changed = differing(known, digests(emit(core)), absent(known))
    assert not changed, (
        f"the C of {len(changed)} of {len(known)} kernels and models of {core} changed:\n"
        f"{listed(changed)}\n"
        "Run `make replay` to see how. If it is meant, run `make replay-write` and say why in the "
        "commit."
    )


@pytest.mark.parametrize("core", cores())
def test_the_table_is_sorted_and_small(core: str) -> None:
    text = table_file(core).read_text()
    assert text == written(parsed(text))
    assert len(text) < 2_000_000


@pytest.mark.parametrize("core", [core for core in cores() if core != "host"])
def test_a_shipped_record_has_the_digest_of_the_table(core: str) -> None:
    table = parsed(table_file(core).read_text())
    for record in shipped_records(core):
        name = f"{RECORD} {record.kernel.key} {record.candidate.label}"
        assert table[name] == record.code


def test_a_digest_that_is_missing_or_new_differs() -> None:
    known = {"same": "1", "other": "1", "gone": "1", "needs a model": "1"}
    found = {"same": "1", "other": "2", "new": "1"}
    assert differing(known, found, ["needs a model"]) == ["gone", "new", "other"]


def test_without_shared_models_only_their_lines_are_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UTVM_SHARED", str(tmp_path))
    names = parsed(table_file("cortex-m7").read_text())
    missing = absent(names)
    assert missing and not any(name.startswith("model digits ") for name in missing)
    assert len(missing) < len(names) / 2
