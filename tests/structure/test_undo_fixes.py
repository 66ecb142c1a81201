"""The table of fixes that can be undone fits today's files and tests."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "undo_fixes"))
from undo_fixes import fixes  # noqa: E402


def test_every_fix_can_be_undone() -> None:
    for fix in fixes():
        text = (ROOT / fix.file).read_text()
        assert fix.old in text, f"{fix.what}: {fix.file} has no such text; mend fixes.toml"
        for test in fix.tests:
            file, _, name = test.partition("::")
            content = (ROOT / file).read_text()
            assert f"def {name}" in content, f"{fix.what}: there is no test {test}"
