"""The mistakes of scripts/mutate fit today's files, and what it says of them is true."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "mutate"))
from mutate import Place, StalePlace, places, tried  # noqa: E402


def test_every_mistake_can_be_made() -> None:
    rows = places()
    assert max(Counter(place.name for place in rows).values()) == 1
    for place in rows:
        assert place.mutated(ROOT) != (ROOT / place.file).read_text()
        for test in place.tests:
            file, _, name = test.partition("::")
            content = "" if (ROOT / file).is_dir() else (ROOT / file).read_text()
            function = name.partition("[")[0]
            assert f"def {function}" in content or not name, f"{place.name}: there is no {test}"


@pytest.mark.slow
def test_mistakes_are_made_in_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "most.py").write_text("LEAST, MOST = 1, 9\n")
    check = "import most\n\n\ndef test_most() -> None:\n    assert most.MOST == 9\n"
    (tmp_path / "test_most.py").write_text(check)
    before = sorted(tmp_path.rglob("*"))
    kept = Place("numbers", "the most is less", "most.py", "9", "8", ["test_most.py"])
    lost = Place("numbers", "the least is less", "most.py", "1,", "0,", ["test_most.py"])
    assert tried(tmp_path, [kept, lost]) == 1
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == ["killed", "SURVIVED", "1"]
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "most.py").read_text() == "LEAST, MOST = 1, 9\n"
    stale = Place("numbers", "nothing", "most.py", "7", "8", ["test_most.py"])
    with pytest.raises(StalePlace, match="0 times"):
        tried(tmp_path, [kept, stale])
