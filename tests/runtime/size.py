"""Size and stack of the C runtime on each core, as a CSV.

    python -m tests.runtime.size            prints the table, with what changed
    python -m tests.runtime.size --update   writes docs/reference/runtime-size.csv

Stack is the deepest chain of calls from utvm_poll or utvm_init, by the compiler's own figures;
the port's functions, the tasks, memcpy and memset come on top.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from utvm_deploy.base.paths import runtime_dir

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "runtime-size.csv"
CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55")
ENTRIES = ("utvm_poll", "utvm_init")
COMPILER = "arm-none-eabi-gcc"
FLAGS = ("-mthumb", "-std=c99", "-Os", "-ffreestanding")

# What a size may grow by before somebody must look and update the table.
BUDGET = 1.02


@dataclass(frozen=True)
class Sizes:
    """One row; all sizes in bytes."""

    core: str
    compiler: str
    text: int
    data: int
    bss: int
    stack: int
    state: int  # of one utvm_t


def compiler_version() -> str:
    return _run(COMPILER, "-dumpfullversion").strip()


def measure(core: str) -> Sizes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in sorted(runtime_dir().glob("*.c")):
            _compile(core, source, folder / f"{source.stem}.o")
        objects = [str(path) for path in sorted(folder.glob("*.o"))]
        totals = _run("arm-none-eabi-size", "--totals", *objects).splitlines()[-1].split()
        stack = deepest({path.name: path.read_text() for path in folder.glob("*.ci")})
        probe = folder / "probe.c"
        probe.write_text('#include "utvm.h"\nextern char probe[];\nchar probe[sizeof(utvm_t)];\n')
        _compile(core, probe, folder / "probe.elf")
        symbol = _run("arm-none-eabi-nm", "--print-size", str(folder / "probe.elf")).split()
        text, data, bss = map(int, totals[:3])
        return Sizes(core, compiler_version(), text, data, bss, stack, int(symbol[1], 16))


def deepest(graphs: Mapping[str, str]) -> int:
    """Bytes of the deepest chain from an entry, from the texts that -fcallgraph-info=su writes."""
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for text in graphs.values():
        for title, size in re.findall(r'node: \{ title: "([^"]+)" label: "[^"]*?(\d+) bytes', text):
            frames[title] = int(size)
        for caller, callee in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', text):
            calls.setdefault(caller, set()).add(callee)

    def depth(function: str, above: tuple[str, ...]) -> int:
        if function in above:
            raise ValueError(f"recursion: {' -> '.join((*above, function))}")
        below = (depth(callee, (*above, function)) for callee in calls.get(function, ()))
        return frames.get(function, 0) + max(below, default=0)

    return max(depth(entry, ()) for entry in ENTRIES)


def stored() -> dict[str, Sizes]:
    """The checked-in table by core."""
    with TABLE.open(newline="") as file:
        rows = [
            Sizes(
                row["core"], row["compiler"], *(int(row[field.name]) for field in fields(Sizes)[2:])
            )
            for row in csv.DictReader(file)
        ]
    return {row.core: row for row in rows}


def table(rows: list[Sizes]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(Sizes)])
    writer.writerows(map(astuple, rows))
    return out.getvalue()


def growth(now: Sizes, before: Sizes) -> list[str]:
    """What grew beyond the budget, in words."""
    sizes = ("text", "data", "bss", "stack", "state")
    pairs = [(name, getattr(now, name), getattr(before, name)) for name in sizes]
    return [
        f"{now.core}: {name} grew from {old} to {new} bytes"
        for name, new, old in pairs
        if new > old * BUDGET
    ]


def _compile(core: str, source: Path, out: Path) -> None:
    target = (f"-mcpu={core}", *FLAGS, "-fcallgraph-info=su", f"-I{runtime_dir()}")
    _run(COMPILER, *target, "-c", str(source), "-o", str(out))


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def main() -> int:
    rows = [measure(core) for core in CORES]
    print(table(rows), end="")
    if "--update" in sys.argv[1:]:
        TABLE.write_text(table(rows))
        return 0
    grown = [line for row in rows for line in growth(row, stored()[row.core])]
    print(*grown, sep="\n", file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
