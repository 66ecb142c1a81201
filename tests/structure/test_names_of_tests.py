"""pytest imports test modules by their base name, so two of one name cannot both be collected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_two_test_modules_have_one_name() -> None:
    counts = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert not [name for name, count in counts.items() if count > 1]
