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
from torch import nn

import utvm_deploy
from utvm_deploy.compiler.compiled.model import Buffer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
from make_writer import (
    HEAD,
    HEADS,
    KEY_HEADS,
    LENGTH,
    PIECES,
    SEED,
    WIDTH,
    Block,
    Writer,
    WriterStep,
    angles,
    rms_norm,
    turned,
)

SAMPLES = 8


class BlockAttention(nn.Module):
    """Attention of some tokens in a row, whose keys and values join those of earlier ones."""

    def __init__(self, block: Block, rows: int) -> None:
        super().__init__()
        self.block, self.rows = block, rows
        self.register_buffer("keys", torch.zeros(1, KEY_HEADS, LENGTH, HEAD))
        self.register_buffer("values", torch.zeros(1, KEY_HEADS, LENGTH, HEAD))

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        hidden: torch.Tensor,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Of (1, rows, WIDTH), the same shape."""
        block, rows = self.block, self.rows

        def by_head(made: torch.Tensor, heads: int) -> torch.Tensor:
            return made.view(1, rows, heads, HEAD).transpose(1, 2)

        query = turned(by_head(block.query(x), HEADS), cos, sin)
        self.keys[:, :, places] = turned(by_head(block.key(x), KEY_HEADS), cos, sin)
        self.values[:, :, places] = by_head(block.value(x), KEY_HEADS)
        grouped = query.reshape(1, KEY_HEADS, HEADS // KEY_HEADS * rows, HEAD)
        scores = (grouped @ self.keys.transpose(-1, -2) * HEAD**-0.5).view(1, HEADS, rows, LENGTH)
        shares = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
        mixed = shares.view(1, KEY_HEADS, -1, LENGTH) @ self.values
        heads = mixed.view(1, HEADS, rows, HEAD).transpose(1, 2)
        made: torch.Tensor = block.out(heads.reshape(1, rows, HEADS * HEAD))
        return made


class WriterBlock(nn.Module):
    """The writer for some tokens and the position of the first one."""

    def __init__(self, model: Writer, rows: int) -> None:
        super().__init__()
        self.model, self.rows = model, rows
        self.attention = nn.ModuleList(BlockAttention(block, rows) for block in model.blocks)
        cos, sin = angles()
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("places", torch.arange(LENGTH))
        self.register_buffer("behind", torch.arange(rows))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Of (rows,) tokens and a position (1,), the scores (rows, PIECES)."""
        x, places = self.model.embedding[token].view(1, self.rows, WIDTH), position + self.behind
        cos, sin, hidden = self.cos[places], self.sin[places], self.places > places[:, None]
        for block, attention in zip(self.model.blocks, self.attention, strict=True):
            x = x + attention(rms_norm(x, block.before_attention), cos, sin, hidden, places)
            x = x + block.mlp(rms_norm(x, block.before_mlp))
        x = rms_norm(x, self.model.last)
        return (x @ self.model.embedding.T).view(self.rows, PIECES)


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
            step = made(WriterStep(model).eval(), 1, scheme, folder / "step")
            for rows in args.rows:
                block = made(WriterBlock(model, rows).eval(), rows, scheme, folder / "block")
                both = folder / "both.tflite"
                utvm_deploy.convert(step, both, prefill=block)
                measure(args.board, scheme, rows, both)


def made(module: nn.Module, rows: int, scheme: str, path: Path) -> Path:
    """The module, quantized with random tokens."""
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
