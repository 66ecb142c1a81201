"""The head of a keyword spotter learns keywords that it never heard, on a board and in PyTorch.

    python benchmarks/training/kws_head.py MODEL.tflite [--board B]

MODEL takes features of (1, 49, 10, 1) or of another shape, such as MLPerf Tiny's keyword spotter.
The keywords are made here: of each class a pattern over time and frequency, and of each sample
that pattern moved in time, louder or quieter, with noise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import utvm_deploy
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.evaluating.conversion import to_input

#: New keywords, and the samples of each to learn and to judge.
NEW, EACH, HELD_OUT = 4, 12, 25
EPOCHS, RATE, SEED = 6, 0.05, 0


def keywords(shape: tuple[int, ...], classes: int, each: int, seed: int) -> Any:
    """Samples of this shape with their labels, ``each`` of every class; patterns never change."""
    steps, bands = shape[1], int(np.prod(shape[2:]))
    patterns, rng = np.random.default_rng(SEED), np.random.default_rng(seed)
    time, band = np.arange(steps)[:, None], np.arange(bands)[None]
    made, labels = [], []
    for label in range(classes):
        tones = patterns.uniform((0.2, 0, 2, 1), (0.8, 1, 8, 3), (4, 4))
        for _ in range(each):
            shift, noise = rng.integers(-3, 4), rng.normal(0, 0.3, (steps, bands))
            found = sum(
                np.exp(-(((time - t * steps - shift) / w) ** 2) - ((band - f * bands) / h) ** 2)
                for t, f, w, h in tones
            )
            made.append(rng.uniform(0.8, 1.2) * 2 * found + noise)
            labels.append(label)
    return np.array(made, np.float32).reshape(-1, *shape[1:]), np.array(labels)


def in_range(samples: Any, one: ModelInput) -> Any:
    """Samples as features of the size that a quantized input expects."""
    if one.quantization is None:
        return samples
    return (14 * one.quantization.scale * samples).astype(np.float32)


def by_pytorch(model: Path, learner: Any, data: tuple[Any, Any], judge: tuple[Any, Any]) -> float:
    """The accuracy of the same head, trained on what the same body gives."""
    with utvm_deploy.connect("host") as device:
        whole = device.load(utvm_deploy.compile(model, "host"))

        def features(samples: Any) -> torch.Tensor:
            made = []
            for one in samples:
                runs = list(whole.run_layers(one[None]))
                (head,) = (i for i, run in enumerate(runs) if run.layer.kind == "FULLY_CONNECTED")
                before = runs[head - 1]
                end = before.layer.outputs[0]
                made.append((before.outputs[0].ravel() - np.float32(end.zero_point)) * end.scale)
            return torch.tensor(np.array(made, np.float32))

        given, judged = features(data[0]), features(judge[0])
    first = [learner.graph.tensors[number].first for number, _ in learner.graph.states[1:3]]
    weight, bias = (torch.tensor(array.copy(), requires_grad=True) for array in first)
    optimizer, order = torch.optim.SGD([weight, bias], lr=RATE), np.random.default_rng(SEED)
    labels = torch.tensor(data[1])
    for _ in range(EPOCHS):
        for i in order.permutation(len(labels)):
            optimizer.zero_grad()
            made = given[i : i + 1] @ weight + bias.reshape(-1)
            torch.nn.functional.cross_entropy(made, labels[i : i + 1]).backward()
            optimizer.step()
    answers = (judged @ weight + bias.reshape(-1)).argmax(1).numpy()
    return float((answers == judge[1]).mean())


def main(model: Path, board: str) -> None:
    graph = load_model(model)
    one = ModelInput.of(graph.tensors[graph.inputs[0]])
    new = keywords(one.shape, NEW, EACH, 1)
    held = keywords(one.shape, NEW, HELD_OUT, 2)
    learner = utvm_deploy.trainable(model, rate=RATE)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "new.npz"), Path(folder, "held.npz")
        for file, (samples, labels) in zip(files, (new, held), strict=True):
            np.savez(file, inputs=in_range(samples, one), labels=labels)
        found = utvm_deploy.train(
            model,
            files[0],
            board,
            rate=RATE,
            epochs=EPOCHS,
            seed=SEED,
            held_out=files[1],
            on_epoch=lambda epoch: print(epoch, flush=True),
        ).to_dict()
    taken = [(to_input(in_range(some, one), one)[0], labels) for some, labels in (new, held)]
    theirs = by_pytorch(model, learner, *taken)
    first, *_, last = found["epochs"]
    step = "" if found["step_s"] is None else f", {1e3 * found['step_s']:.2f} ms a step"
    print(f"right before {100 * first['accuracy']:.1f} %, after {100 * last['accuracy']:.1f} %")
    print(f"PyTorch: {100 * theirs:.1f} %")
    print(f"arena {found['arena_bytes']:,}, flash {found['flash_bytes']:,} bytes{step}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--board", default="mps2_an500")
    arguments = parser.parse_args()
    main(arguments.model, arguments.board)
