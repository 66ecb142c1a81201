"""Seconds from a .tflite to a built image, cold, in a process of its own.

python benchmarks/build_time.py --board mps2_an500 MODEL.tflite...

Each model is compiled and built from nothing (no cache of images) by the command line, as a user's
CI would do it: `utvm project create`, then `utvm project build`. Three runs each; all are printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 3


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", default="mps2_an500")
    args = parser.parse_args()
    print(f"{'model':<24} {'to sources':>11} {'to image':>9}   (seconds, {RUNS} runs)")
    for model in args.models:
        creates, totals = [], []
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                tree = str(Path(folder) / "tree")
                began = time.perf_counter()
                utvm("project", "create", str(model), tree, "--board", args.board)
                created = time.perf_counter()
                utvm("project", "build", tree)
                creates.append(created - began)
                totals.append(time.perf_counter() - began)
        print(f"{model.stem:<24} {spread(creates):>11} {spread(totals):>9}")


def utvm(*argv: str) -> None:
    """One command in a process of its own, imports included."""
    subprocess.run(
        [sys.executable, "-m", "utvm_deploy", *argv],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def spread(seconds: list[float]) -> str:
    """Smallest to largest."""
    return f"{min(seconds):.1f}..{max(seconds):.1f}"


if __name__ == "__main__":
    main()
