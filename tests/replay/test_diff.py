"""What ``make replay`` shows."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "replay"))
from replay_command import MOST_LINES, diff


def test_the_first_kernels_are_shown_and_the_others_named() -> None:
    before = {name: "a;\nb;\n" for name in ("one", "same", "three", "two")}
    after = {**before, "one": "a;\nc;\n", "two": "a;\n", "three": ""}
    shown = "\n".join(diff(before, after, 1))
    assert "-b;\n+c;" in shown
    assert "before: one" in shown and "same" not in shown
    assert "2 more differ:" in shown and "two" in shown and "before: two" not in shown


def test_a_long_diff_is_cut() -> None:
    lines = list(diff({}, {"new": "x;\n" * 1000}, 1))
    assert len(lines) == MOST_LINES + 1
    assert lines[-1].endswith("more lines of new")
