"""Make gru.tflite and gru_labelled.npz: train a GRU on motions that are computed here.

It runs in the venv of the project, with its extra `torch` (about two minutes on one core):

    python models/make_gru.py            # writes next to this file
    python models/make_gru.py -o OTHER   # or into the folder OTHER

Everything random is seeded. No data of anybody else are used: ``motions`` computes them. It
printed:

    float accuracy: 482 of 500 held-out motions
    int8: 63,312 bytes, no operator in float32, SQNR 34.1 dB, 200 samples
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import utvm_deploy

SEED = 20261
CHANNELS, STEPS, CLASSES, CELLS = 8, 8, 10, 32
TO_TRAIN, HELD_OUT, CALIBRATION_SAMPLES = 4000, 500, 200
#: Standard deviation of what is added to each value.
NOISE = 0.9

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class Motions(nn.Module):
    """A GRU over the steps, and a dense layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(CHANNELS, CELLS, batch_first=True)
        self.classify = nn.Linear(CELLS, CLASSES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Of (N, 8, 8), the score of each class."""
        states, _ = self.gru(values)
        scores: torch.Tensor = self.classify(states[:, -1])
        return scores


def motions(count: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
    """Motions of eight sensors: waves whose frequencies and phases say the class."""
    shapes = np.random.default_rng(SEED)
    frequencies = shapes.uniform(0.2, 1.2, (CLASSES, CHANNELS, 1))
    phases = shapes.uniform(0, 2 * np.pi, (CLASSES, CHANNELS, 1))
    labels = rng.integers(0, CLASSES, count)
    times = np.arange(STEPS) * rng.uniform(0.85, 1.15, (count, 1, 1))
    shifts = rng.uniform(-0.5, 0.5, (count, 1, 1))
    clean = np.sin(frequencies[labels] * times + phases[labels] + shifts)
    loud = rng.uniform(0.6, 1.4, (count, 1, 1)) * clean + rng.normal(0, NOISE, clean.shape)
    return loud.transpose(0, 2, 1).astype(np.float32), labels.astype(np.int64)


def train(values: Floats, labels: Labels, epochs: int = 20) -> nn.Module:
    """A trained network."""
    model = Motions()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = nn.CrossEntropyLoss()
    shown, truth = torch.from_numpy(values), torch.from_numpy(labels)
    for _ in range(epochs):
        for batch in torch.randperm(len(shown)).split(64):
            optimizer.zero_grad()
            loss_of(model(shown[batch]), truth[batch]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Make the files and print how good the model is."""
    parser = argparse.ArgumentParser(description="make gru.tflite and its data")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent)
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED + 1)
    values, labels = motions(TO_TRAIN, rng)
    held_out, truth = motions(HELD_OUT, rng)
    model = train(values, labels)
    made = utvm_deploy.quantize(model, torch.from_numpy(values[:CALIBRATION_SAMPLES]))
    made.save(folder / "gru.tflite")
    np.savez_compressed(folder / "gru_labelled.npz", inputs=held_out, labels=truth)
    with torch.no_grad():
        guesses = model(torch.from_numpy(held_out)).argmax(1).numpy()
    print(f"float accuracy: {int((guesses == truth).sum())} of {HELD_OUT} held-out motions")
    print(made.headline)


if __name__ == "__main__":
    main()
