"""Bytes and cycles of layers with zeros, beside those of the same layers without zeros.

    python benchmarks/sparse/layers.py [BOARD...]

It writes the table between the marks of docs/guides/pruning.md. Each board runs one model of all
layers at level ``size``, which packs what is smaller packed. Bytes are all constants of a layer.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import utvm_deploy

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "examples")]

from sparse_dense import pruned  # noqa: E402
from tflite_writer import ModelWriter  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "pruning.md"
MARKS = "<!-- layers with zeros -->\n", "<!-- end -->\n"
BOARDS = ("mps2_an386", "mps2_an500", "mps3_an547", "qemu_cv32e40p")
#: Share of zeros, and weights of a block.
ZEROS = ((0.0, 1), (0.6, 1), (0.75, 1), (0.9, 1), (0.6, 4), (0.75, 4), (0.9, 4))
IMAGE, CHANNELS = 8, 128


@dataclass(frozen=True)
class Layer:
    """A layer of the model."""

    kind: str
    zeros: float
    block: int


LAYERS = [Layer(kind, *zeros) for kind in ("dense", "pointwise") for zeros in ZEROS]


def model() -> ModelWriter:
    """All layers, beside each other; each has its own input, so that none are joined."""
    rng, m = np.random.default_rng(1), ModelWriter()
    bias = rng.integers(-900, 900, 128).astype(np.int32)
    for layer in LAYERS:
        if layer.kind == "dense":
            x = m.input((1, 512), scale=0.05, zero_point=3)
            weights = pruned(rng, 128, 512, layer.zeros, layer.block)
            m.output(m.fully_connected(x, weights, bias, scale=0.9, weight_scale=0.02))
            continue
        x = m.input((1, IMAGE, IMAGE, CHANNELS), scale=0.05, zero_point=3)
        weights = pruned(rng, 128, CHANNELS, layer.zeros, layer.block).reshape(128, 1, 1, -1)
        m.output(m.conv2d(x, weights, bias, scale=0.9, weight_scale=[0.02] * 128))
    return m


def figures(path: Path, board: str) -> list[tuple[int, int, str]]:
    """Of each layer: bytes, cycles, and the kernel's form."""
    compiled = utvm_deploy.compile(path, board, optimize="size")
    found = utvm_deploy.profile(path, board, optimize="size").table
    rows = []
    for layer, row in zip(compiled.layers, found, strict=True):
        form = layer.kernel.split("_")[-2] if layer.engine == "sparse" else "all"
        rows.append((layer.weights_bytes, row.get("cycles") or row["instructions"], form))
    return rows


def table(boards: Sequence[str]) -> Iterator[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = model().save(Path(folder) / "layers.tflite")
        found = {board: figures(path, board) for board in boards}
    heads = ["layer", "zeros", "stored as", "bytes", *boards]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---|---|{'---:|' * (len(heads) - 3)}"
    for n, layer in enumerate(LAYERS):
        whole = next(i for i, one in enumerate(LAYERS) if one.kind == layer.kind)
        size, _, form = found[boards[0]][n]
        what = (
            "512x128" if layer.kind == "dense" else f"1x1, {CHANNELS}x128, {IMAGE}x{IMAGE} pixels"
        )
        zeros = (
            f"{layer.zeros:.0%}{' in 1x4' if layer.block > 1 else ''}" if layer.zeros else "none"
        )
        cells = []
        for board in boards:
            cycles, base = found[board][n][1], found[board][whole][1]
            cells.append(f"{cycles:,}" + (f" ({cycles / base:.0%})" if layer.zeros else ""))
        yield f"| {what} | {zeros} | {form} | {size:,} | {' | '.join(cells)} |"


def main(boards: Sequence[str]) -> None:
    """Write the table."""
    lines = "".join(f"{line}\n" for line in table(boards or BOARDS))
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}{lines}{MARKS[1]}{after}", encoding="utf-8")
    print(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
