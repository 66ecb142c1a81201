"""The results for the files that ``make.py`` wrote: a page with a row for each.

    python benchmarks/converters/table.py FOLDER > docs/reference/converters.md

Each file is verified on the board ``host``, with two samples. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

TIMEOUT_S = 900
EXACT, BOUND, REFUSED, WRONG, NONE = (
    "exact",
    "within bound",
    "refused",
    "**wrong**",
    "no file",
)
#: How the name of a file begins -> what wrote it.
WRITERS: Mapping[str, str] = {
    "keras": "Keras 3, TensorFlow's converter",
    "tf": "TensorFlow's converter",
    "aeq": "ai-edge-quantizer",
    "torch": "PyTorch",
    "torchao": "torchao",
    "ort": "onnxruntime's quantizer",
}
_HEAD = """\
# Files of converters

The table has the results for small model files that other tools wrote. Each was verified on the
board `host` with two random samples. *Exact* means that every output byte equals the
reference. *Within bound* means that float32 functions in the model have
the errors of [Floating point](float.md). A refused file has the message.

The scripts of `benchmarks/converters` write the files and this page. They run where the packages
are installed. Here, these were:
{versions}.

| file | written by | result | layers | why |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """A file and what became of it."""

    file: str
    result: str
    layers: int | None = None
    why: str = ""

    @property
    def line(self) -> str:
        """The row of the table."""
        writer = WRITERS[self.file.split("_")[0]]
        why = self.why.replace("|", "\\|")
        return f"| {self.file} | {writer} | {self.result} | {self.layers or ''} | {why} |"


def judged(path: Path) -> Row:
    """Verify a file on the host."""
    command = [sys.executable, "-m", "utvm_deploy", "verify", str(path), "--board", "host"]
    done = subprocess.run(
        [*command, "--samples", "2", "--json", "--no-store"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return Row(path.name, WRONG, why=last)
    if "error" in told:
        return Row(path.name, REFUSED, why=_without_path(told["error"], path))
    layers = len(told["layers"])
    if not told["ok"]:
        return Row(path.name, WRONG, layers, f"{len(told['mismatches'])} mismatches")
    bound = told["bound"]
    return Row(path.name, BOUND if bound["ulps"] or bound["relative"] else EXACT, layers)


def _without_path(text: str, path: Path) -> str:
    return text.replace(f"{path}: ", "").replace(str(path), path.name)


def page(rows: Sequence[Row], versions: str) -> str:
    """The whole page."""
    counts = Counter(row.result for row in rows)
    total = ", ".join(f"{counts[one]} {one}" for one in (EXACT, BOUND, REFUSED, WRONG, NONE))
    lines = "\n".join(row.line for row in rows)
    return f"{_HEAD.format(versions=fill(versions, 98))}{lines}\n\nOf {len(rows)} files: {total}.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--versions", default="their newest versions", help="of the packages")
    parser.add_argument("--only", default="", help="files whose name has this text")
    given = parser.parse_args()
    rows = []
    for path in sorted(one for one in given.folder.iterdir() if given.only in one.name):
        if path.suffix == ".failed":
            why = f"the converter ended with {path.read_text(encoding='utf-8').strip()}"
            rows.append(Row(path.stem, NONE, why=why))
        else:
            rows.append(judged(path))
        print(rows[-1].line, file=sys.stderr, flush=True)
    print(page(rows, given.versions), end="")
    return 1 if any(row.result == WRONG for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
