"""Whether Q, K and V of many rows should be one product: what both forms take.

    python benchmarks/attention/wide_dense.py [--board BOARD...]

Three dense layers of int8 read one tensor of some rows. The other form is one layer with the
outputs of all three, without the split that takes them apart. So it is the most that joining saves.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import utvm_deploy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from tflite_writer import ModelWriter

SHAPES = ((8, 64), (16, 64), (64, 64), (64, 128), (128, 128))
BOARDS = ("mps2_an500", "mps3_an547", "qemu_rv32imc")


def dense(folder: Path, rows: int, width: int, parts: int) -> Path:
    """Three times ``width`` outputs for each of the rows, by ``parts`` layers."""
    rng, m = np.random.default_rng(rows), ModelWriter()
    x = m.input((rows, width), 0.05, 3)
    for weights in np.split(rng.integers(-127, 128, (3 * width, width), dtype=np.int8), parts):
        bias = rng.integers(-500, 500, len(weights))
        m.output(m.fully_connected(x, weights, bias, scale=0.2))
    return m.save(folder / f"dense_{rows}_{width}_{parts}.tflite")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--board", nargs="+", default=BOARDS)
    args = parser.parse_args()
    print("| board | rows | width | three layers | one layer | saved |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for board in args.board:
            for rows, width in SHAPES:
                apart, joined = (
                    utvm_deploy.profile(dense(Path(folder), rows, width, parts), board).found.ticks
                    for parts in (3, 1)
                )
                saved = 1 - joined / apart
                row = board, rows, width, f"{apart:,}", f"{joined:,}", f"{saved:.1%}"
                print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
