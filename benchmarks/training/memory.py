"""What a train step of MobileNetV2 takes: RAM against what is computed again, as a table.

    python benchmarks/training/memory.py [MODEL.tflite]

MODEL is the net that an earlier run wrote. Without it, the net is made, quantized and written to
the file that is printed.

The net is MobileNetV2 0.35 for images of 96x96, with seeded weights and 10 classes. Its body is
int8. Each row trains other layers; a step runs once on mps2_an500, and its cycles are modelled. The
board has the memories of QEMU's machine here: 4 MiB of flash and almost 4 MiB of RAM. Weights after
the step must be the same bytes within every budget.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import utvm_deploy
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.budgets import OverBudget

#: Expansion, channels, blocks and stride (Sandler and others, "MobileNetV2", 2018, table 2).
BLOCKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
#: Bytes of the board's memories.
MEMORIES = {"flash": 0x0040_0000, "ram": 0x003F_0000}
WIDTH, SIZE, LAST, CLASSES = 0.35, 96, 1280, 10
#: What trains -> positions of the layers. The layer before the last one stays as it is.
TRAINED = {
    "the head": (-1,),
    "the depthwise layer of the last block, and the head": (-4, -1),
    "the last block, and the head": (-5, -4, -3, -1),
    "the last two blocks, and the head": (-8, -7, -6, -5, -4, -3, -1),
}


class Block(nn.Module):
    """An inverted residual."""

    def __init__(self, channels: int, expansion: int, made: int, stride: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = [] if expansion == 1 else normalized(channels, wide, 1)
        layers += normalized(wide, wide, 3, stride=stride, padding=1, groups=wide)
        self.layers = nn.Sequential(*layers, *normalized(wide, made, 1)[:2])
        self.adds = stride == 1 and channels == made

    def forward(self, x: Any) -> Any:
        """The block's result."""
        return x + self.layers(x) if self.adds else self.layers(x)


class LastChannels(nn.Module):
    """A net that takes its image with the channels last, as files of LiteRT do."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        """Scores of classes."""
        return self.net(x.permute(0, 3, 1, 2))


def normalized(channels: int, made: int, size: int, **options: int) -> list[nn.Module]:
    """A convolution, its normalization and ReLU6."""
    convolution = nn.Conv2d(channels, made, size, bias=False, **options)  # type: ignore[arg-type]
    return [convolution, nn.BatchNorm2d(made), nn.ReLU6()]


def channels_of(width: float) -> int:
    """A multiple of 8 that is not below 90 % of the width."""
    number = max(8, int(width + 4) // 8 * 8)
    return number + 8 if number < 0.9 * width else number


def mobilenet() -> nn.Module:
    """The net; its normalizations have seen some images."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on a loaded machine, threads wait for each other
    now = channels_of(32 * WIDTH)
    layers = normalized(3, now, 3, stride=2, padding=1)
    for expansion, wide, count, stride in BLOCKS:
        for number in range(count):
            made = channels_of(wide * WIDTH)
            layers.append(Block(now, expansion, made, 1 if number else stride))
            now = made
    layers += [*normalized(now, LAST, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(LAST, CLASSES))
    with torch.no_grad():
        for _ in range(10):
            net(torch.randn(16, 3, SIZE, SIZE))
    return LastChannels(net).eval()


def quantized(folder: Path) -> Path:
    """The net as a file of int8."""
    example, rng = (torch.zeros(1, SIZE, SIZE, 3),), np.random.default_rng(0)
    torch.export.save(torch.export.export(mobilenet(), example), folder / "net.pt2")
    images = rng.standard_normal((8, 1, SIZE, SIZE, 3)).astype(np.float32)
    utvm_deploy.quantize(folder / "net.pt2", images).save(folder / "net.tflite")
    return folder / "net.tflite"


def plans(learner: Any, board: Board) -> list[tuple[str, Any]]:
    """The compiled step by default, within 128 KiB if that is possible, and within the least."""
    found, least = [("default", utvm_deploy.compile(learner, board))], 0
    for told, budget in (("128 KiB", 131_072), ("least", 1)):
        if not least:
            try:
                found.append((told, utvm_deploy.compile(learner, board, ram_budget=budget)))
            except OverBudget as error:
                least = error.least_bytes
    return [*found, ("least", utvm_deploy.compile(learner, board, ram_budget=least))]


def step(model: Any, board: Board) -> tuple[int, bytes]:
    """The cycles of a step, and the weights after it."""
    image = np.random.default_rng(1).integers(-128, 128, (1, SIZE, SIZE, 3), dtype=np.int8)
    with utvm_deploy.connect(board) as device:
        loaded = device.load(model)
        _, ticks = loaded.train_step((image,), [3])
        return next(iter(device.figures([ticks])[0].values())), loaded.weights()


def main(path: Path | None) -> None:
    """Print the table."""
    board = utvm_deploy.load_board("mps2_an500")
    memories = (replace(one, size=MEMORIES.get(one.name, one.size)) for one in board.memory)
    board = replace(board, memory=tuple(memories))
    print("| what trains | plan | arena | weights in it | the rest | flash | again | cycles |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    if path is None:
        path = quantized(Path(tempfile.mkdtemp()))
        print(path, file=sys.stderr)
    for told, layers in TRAINED.items():
        learner = utvm_deploy.trainable(path, layers=layers)
        known = None
        for plan, model in plans(learner, board):
            cycles, weights = step(model, board)
            if weights != (known := known or weights):
                raise SystemExit(f"{told}: {plan} makes other weights")
            own = model.training.stored.size_bytes
            again = model.tradeoff.recomputed if model.tradeoff else 0
            print(
                f"| {told} | {plan} | {model.arena_bytes:,} | {own:,} | "
                f"{model.arena_bytes - own:,} | {model.weights_bytes:,} | {again} | "
                f"{cycles:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
