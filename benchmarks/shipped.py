"""Whether `utvm bundle` writes what `utvm profile` measures: each model at each level.

python benchmarks/shipped.py MODEL... [--board BOARD] [--optimize LEVEL...]

A row has the figures of both. The exit code is 1 if one of them, or a byte of the C, differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import utvm_deploy
from utvm_deploy.compiler.options import LEVELS

#: Of `utvm profile --json`; the bundle's manifest has them, too.
FIGURES = ("ticks", "ram_bytes", "arena_bytes", "pool_bytes", "flash_bytes", "weights_bytes")


def main() -> int:
    """Compare and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--optimize", choices=LEVELS, nargs="+", default=LEVELS)
    args = parser.parse_args()
    print(f"| model | level | {' | '.join(FIGURES)} | bundle |")
    print(f"|---|---|{'--:|' * len(FIGURES)}---|")
    are_same = True
    for path in args.models:
        for level in args.optimize:
            profiled, bundled = figures(path, args.board, level)
            is_same = profiled == bundled
            are_same &= is_same
            row = " | ".join(f"{profiled[name]:,}" for name in FIGURES)
            told = "the same" if is_same else f"differs: {bundled}"
            print(f"| {path.stem} | {level} | {row} | {told} |", flush=True)
    return 0 if are_same else 1


def figures(path: Path, board: str, level: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The figures by a profile, and those of a bundle; a bundle of other C has none."""
    profiled = utvm_deploy.profile(path, board, optimize=level).to_dict()
    compiled = utvm_deploy.compile(path, board, optimize=level)
    with tempfile.TemporaryDirectory() as folder:
        made = utvm_deploy.bundle(path, board, Path(folder, "bundle"), optimize=level)
        files = {file.name: file.read_text() for file in made.path.rglob("*.[ch]")}
    bundled = made.latency
    if bundled is None or any(files[name] != text for name, text in compiled.sources.items()):
        bundled = {}
    return tuple(  # type: ignore[return-value]
        {name: int(found[name]) for name in FIGURES if name in found}
        for found in (profiled, bundled)
    )


if __name__ == "__main__":
    sys.exit(main())
