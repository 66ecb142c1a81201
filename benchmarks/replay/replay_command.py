"""Show how the emitted C of this tree differs from another revision's, as a diff.

    python benchmarks/replay/replay_command.py [--against REVISION] [--core CORE...] [--kernels N]
    python benchmarks/replay/replay_command.py --write

What this tree emits is compared with the table of digests that the revision holds. Of what differs,
the revision's own C is made from a copy of it in a temporary folder. ``--write`` brings the tables
of this tree up to date instead. Set UTVM_SHARED to the folder of shared models: their lines of the
table stay as they are without it.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from digest_table import differing, digests, listed, parsed, table_file, written
from emission import ROOT, Emitted, absent, cores, emit

#: Emitting everything takes a core less than a minute; this ends what hangs.
TIMEOUT_S = 1800
EMISSION = ROOT / "benchmarks" / "replay" / "emission.py"
#: Lines around each difference, and the longest diff of one kernel.
CONTEXT, MOST_LINES = 3, 80


def git(*arguments: str) -> bytes:
    """What git answers about this repository."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)} failed: {done.stderr.decode().strip()}")
    return done.stdout


def table_of(revision: str, core: str) -> dict[str, str]:
    """The digests that a revision holds."""
    path = table_file(core).relative_to(ROOT).as_posix()
    return parsed(git("show", f"{revision}:{path}").decode())


def asked(revision: str, program: Path, core: str, question: object) -> Any:
    """What a revision's own copy of a program answers; both are JSON."""
    with tempfile.TemporaryDirectory(prefix="utvm-replay-") as folder:
        tree = git("archive", "--format=tar", revision)
        subprocess.run(["tar", "-x", "-C", folder], input=tree, check=True, timeout=TIMEOUT_S)
        return answer_of(Path(folder), program, core, question)


def answer_of(tree: Path, program: Path, core: str, question: object) -> Any:
    """What a tree's copy of a program answers."""
    done = subprocess.run(
        [sys.executable, str(tree / program.relative_to(ROOT)), core],
        env={**os.environ, "PYTHONPATH": str(tree)},
        input=json.dumps(question),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise SystemExit(f"{program.name} of {tree} failed for {core} (see above)")
    return json.loads(done.stdout)


def emitted_by(revision: str, core: str, names: Sequence[str]) -> list[Emitted]:
    """What the revision emits."""
    answer = asked(revision, EMISSION, core, list(names))
    return [
        Emitted(name, tuple(answer["parts"][part] for part in parts), function)
        for name, parts, function in answer["entries"]
    ]


def diff(before: Mapping[str, str], after: Mapping[str, str], most: int) -> Iterator[str]:
    """Lines that show what differs in the first ``most`` codes, and how many more differ."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    for name in names[:most]:
        lines = list(
            difflib.unified_diff(
                before.get(name, "").splitlines(),
                after.get(name, "").splitlines(),
                f"before: {name}",
                f"after:  {name}",
                n=CONTEXT,
                lineterm="",
            )
        )
        yield from lines[:MOST_LINES]
        if len(lines) > MOST_LINES:
            yield f"... {len(lines) - MOST_LINES} more lines of {name}"
    if len(names) > most:
        yield f"{len(names) - most} more differ:"
        yield listed(names[most:])


def compare(core: str, revision: str, most: int) -> bool:
    """Whether this tree emits what the revision does; prints what differs."""
    now = list(emit(core))
    known = table_of(revision, core)
    # Those that this computer has no model of.
    names = differing(known, digests(now), absent(known))
    if not names:
        print(f"{core}: the same C as {revision}, {len(now)} times")
        return True
    print(f"{core}: {len(names)} of {len(known)} differ from {revision}")
    # Of a model that is asked for by one line, all of its lines come.
    before = {
        one.name: one.code() for one in emitted_by(revision, core, names) if one.name in names
    }
    after = {one.name: one.code() for one in now if one.name in names}
    print("\n".join(diff(before, after, most)), flush=True)
    return False


def write(core: str) -> None:
    """Bring a core's table up to date, and say what changed."""
    path = table_file(core)
    known = parsed(path.read_text()) if path.is_file() else {}
    kept = {name: known[name] for name in absent(known)}
    found = {**kept, **digests(emit(core))}
    changed = differing(known, found)
    path.parent.mkdir(exist_ok=True)
    path.write_text(written(found))
    print(f"{path.relative_to(ROOT)}: {len(found)} lines, {len(changed)} changed", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default="HEAD", metavar="REVISION", help="HEAD if not given")
    parser.add_argument("--core", action="append", choices=cores(), help="all if not given")
    parser.add_argument("--kernels", type=int, default=3, metavar="N", help="to show of each core")
    parser.add_argument("--write", action="store_true", help="bring this tree's tables up to date")
    options = parser.parse_args()
    chosen = options.core or cores()
    if options.write:
        for core in chosen:
            write(core)
        return 0
    same = [compare(core, options.against, options.kernels) for core in chosen]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
