"""Modelled cycles of float32 models with and without kernels for floating-point units.

    python benchmarks/float/models.py MODEL.tflite... --board BOARD

Prints a row for each model: plain C, then our kernels with ``--float-math`` exact and fast.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 900
COLUMNS = (("generic", "exact"), ("generic", "fast"), ("best", "exact"), ("best", "fast"))


def profile(path: Path, board: str, kernels: str, float_math: str) -> dict[str, float]:
    """What ``utvm profile --json`` says of the whole model."""
    command = [sys.executable, "-m", "utvm_deploy", "profile", str(path), "--board", board]
    options = ["--kernels", kernels, "--float-math", float_math, "--json", "--no-store"]
    done = subprocess.run(
        [*command, *options], check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", metavar="MODEL", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    args = parser.parse_args()
    print("| model | " + " | ".join(f"{k}, {m}" for k, m in COLUMNS) + " |")
    print("|---|" + "--:|" * len(COLUMNS))
    for path in args.models:
        cells = []
        for kernels, float_math in COLUMNS:
            total = profile(path, args.board, kernels, float_math)
            cells.append(f"{total['ticks'] / 1e6:.2f} M")
        print(f"| {path.stem} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
