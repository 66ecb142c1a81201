"""What a token of a prompt takes in a step and in a block of steps, in modelled cycles.

    python benchmarks/attention/prefill.py [--board BOARD] [--scheme int8 int4] [--rows 8 16]

The model is that of ``models/make_writer.py`` with random weights: cycles of its kernels do not
depend on their values. A block reads all weights once for its tokens. Its last row is not scored:
scores are for the step behind it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import utvm_deploy
from utvm_deploy.compiler.compiled.model import Buffer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
from make_writer import LENGTH, PIECES, SEED, Writer, WriterStep

SAMPLES = 8


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--scheme", nargs="+", default=["int8", "int4"])
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 16])
    args = parser.parse_args()
    torch.manual_seed(SEED)
    model = Writer().eval()
    print("| scheme | tokens of a block | a step | a token in a block | constants |")
    print("|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for scheme in args.scheme:
            step = made(model, 1, scheme, folder / "step")
            for rows in args.rows:
                block = made(model, rows, scheme, folder / "block")
                both = folder / "both.tflite"
                utvm_deploy.convert(step, both, prefill=block)
                measure(args.board, scheme, rows, both)


def made(model: Writer, rows: int, scheme: str, path: Path) -> Path:
    """The model for so many tokens, quantized with random ones."""
    module = WriterStep(model, rows).eval()
    example = (torch.zeros(rows, dtype=torch.int64), torch.tensor([1]))
    torch.export.save(torch.export.export(module, example), path.with_suffix(".pt2"))
    rng = np.random.default_rng(SEED)
    data = {
        "token": rng.integers(0, PIECES, (SAMPLES, rows)),
        "position": np.arange(SAMPLES)[:, None] * rows % (LENGTH - rows + 1),
    }
    target = path.with_suffix(".tflite")
    utvm_deploy.quantize(path.with_suffix(".pt2"), data, scheme=scheme).save(target)
    return target


def measure(board: str, scheme: str, rows: int, path: Path) -> None:
    """The row of a model; the first inputs are those of the step."""
    compiled = utvm_deploy.compile(path, board)
    tokens = np.arange(rows)

    def given(ends: Sequence[Buffer], values: np.ndarray) -> list[np.ndarray]:
        pairs = zip((values, np.zeros(1)), ends, strict=True)
        return [value.astype(end.dtype).reshape(end.shape) for value, end in pairs]

    with utvm_deploy.connect(board) as device:
        model = device.load(compiled)
        _, step = model.step(given(compiled.step_inputs, tokens[:1]))
        block = model.prefill(given(compiled.block_inputs, tokens))
        step, block = (next(iter(one.values())) for one in device.figures([step, block]))
    print(
        f"| {scheme} | {rows} | {step:,} | {block // rows:,} | {compiled.weights_bytes:,} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
