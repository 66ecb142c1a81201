"""Undoes fixes of the changelog one by one, and checks that a test notices.

    python scripts/undo_fixes/undo_fixes.py          all of fixes.toml: half an hour
    python scripts/undo_fixes/undo_fixes.py 3 7      the fixes of these numbers

Each fix is undone in a copy of the tree, where its tests must fail. Run this after tests were made
cheaper or moved to the soak.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = HERE / "fixes.toml"
#: How long the tests of one fix may take on a loaded machine.
PATIENCE_S = 900.0
#: pytest: some tests failed. Other codes say that they could not run.
TESTS_FAILED = 1


@dataclass(frozen=True)
class Fix:
    """A fix, as a text of one file: what undoes it, and who must notice."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def fixes() -> list[Fix]:
    """The table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fix"]
    return [Fix(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def is_noticed(fix: Fix) -> bool:
    """Whether a test fails in a copy of the tree without the fix."""
    with tempfile.TemporaryDirectory(prefix="utvm-undo-") as name:
        tree = Path(name) / "tree"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "build")
        shutil.copytree(ROOT, tree, ignore=ignored)
        file = tree / fix.file
        file.write_text(file.read_text(encoding="utf-8").replace(fix.old, fix.new))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *fix.tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
    return done.returncode == TESTS_FAILED


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Undo fixes and check that a test notices.")
    parser.add_argument("number", nargs="*", type=int, help="which fixes, from 1; default: all")
    numbers = parser.parse_args(argv).number
    missed = 0
    for number, fix in enumerate(fixes(), 1):
        if numbers and number not in numbers:
            continue
        noticed = is_noticed(fix)
        missed += not noticed
        print(f"{number:2} {'noticed' if noticed else 'NOT NOTICED'}: {fix.what}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
