"""Makes one mistake after another in a copy of the tree, and checks that a test notices each.

    python scripts/mutate/mutate.py                    all of scripts/mutate/places
    python scripts/mutate/mutate.py --list             the mistakes and the tests that must notice
    python scripts/mutate/mutate.py --only graph       those of a file, or whose name has this text

The exit status is 1 if a mistake survives, or if a place or its tests cannot be used.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
from utvm_deploy.base import process  # noqa: E402
from utvm_deploy.base.temporary import TemporaryFolder  # noqa: E402

#: How long the tests of one place may take on a loaded machine.
PATIENCE_S = 900.0
#: What the exit status of pytest says about a mistake. Others say that no test could run.
KILLED, SURVIVED = "killed", "SURVIVED"
_RESULTS = {0: SURVIVED, 1: KILLED}


class StalePlace(Exception):
    """The text of a place is not in its file exactly once."""


@dataclass(frozen=True)
class Place:
    """A mistake: ``old``, which is once in a file, becomes ``new``; one of the tests must fail."""

    group: str
    name: str
    file: str
    old: str
    new: str
    tests: list[str]

    def mutated(self, root: Path) -> str:
        """The file's text with the mistake. Raises StalePlace."""
        text = (root / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise StalePlace(
                f"{self.group}, {self.name}: {self.file} has this text {text.count(self.old)} "
                f"times, not once: {self.old!r}; mend scripts/mutate/places/{self.group}.toml"
            )
        return text.replace(self.old, self.new)


def places(folder: Path = HERE / "places") -> list[Place]:
    """The rows of all tables."""
    return [
        Place(table.stem, **row)
        for table in sorted(folder.glob("*.toml"))
        for row in tomllib.loads(table.read_text(encoding="utf-8"))["place"]
    ]


def result(root: Path, tests: Iterable[str], place: Place | None = None) -> str:
    """What the tests say in a copy of the tree, with the mistake if there is one."""
    with TemporaryFolder("mutate") as folder:
        tree = folder / "tree"
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".*", "build"), symlinks=True)
        if place is not None:
            (tree / place.file).write_text(place.mutated(tree), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = process.run(
            [*command, f"--basetemp={folder / 'pytest'}", *tests],
            timeout_s=PATIENCE_S,
            cwd=tree,
            # Their own temporary files go with the folder.
            env={"PYTHONPATH": str(tree), "TMPDIR": str(folder)},
        )
    if done.timed_out:
        return f"took more than {PATIENCE_S:.0f} s"
    if done.returncode not in _RESULTS or (place is None and done.returncode):
        print(done.output[-5000:], file=sys.stderr)
    return _RESULTS.get(done.returncode, f"no test ran (pytest ends with {done.returncode})")


def tried(root: Path, chosen: Sequence[Place]) -> int:
    """How many of these mistakes are not killed; prints a row for each."""
    for place in chosen:
        place.mutated(root)
    # Tests that always fail notice nothing.
    every = dict.fromkeys(test for place in chosen for test in place.tests)
    if (unchanged := result(root, every)) != SURVIVED:
        print(f"the tests must pass without a mistake: {unchanged}", file=sys.stderr)
        return len(chosen)
    missed = 0
    for place in chosen:
        begun = time.monotonic()
        said = result(root, place.tests, place)
        missed += said != KILLED
        took = time.monotonic() - begun
        print(f"{said:10} {took:4.0f} s  {place.group:10} {place.name}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} killed")
    return missed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make mistakes and check that a test notices.")
    parser.add_argument("--list", action="store_true", help="show the mistakes and make none")
    parser.add_argument("--only", metavar="NAME", default="", help="a group, or a part of a name")
    args = parser.parse_args(argv)
    chosen = [one for one in places() if args.only == one.group or args.only in one.name]
    if not chosen:
        parser.error(f"no group is called {args.only}, and no name has this text; see --list")
    if args.list:
        for place in chosen:
            print(f"{place.group:10} {place.name}\n{'':10} {place.file}: {' '.join(place.tests)}")
        return 0
    try:
        return 1 if tried(ROOT, chosen) else 0
    except StalePlace as stale:
        print(stale, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
