"""Train digits_float.tflite and diabetes_float.tflite, and write the data that belong to them.

PyTorch trains the networks, and litert-torch writes them. Neither is needed elsewhere for this, so
the script has a venv of its own (Python 3.11, Linux x86-64; about a minute on two cores):

    python3.11 -m venv /tmp/float-venv
    /tmp/float-venv/bin/pip install torch==2.13.0 litert-torch==0.10.0 scikit-learn==1.9.1
    /tmp/float-venv/bin/python models/make_float_models.py            # writes next to this file
    /tmp/float-venv/bin/python models/make_float_models.py -o OTHER   # or into the folder OTHER

`utvm quantize` then makes the int8 and int16x8 forms. Everything random is seeded, and the
splits are fixed: neither training nor calibration sees a held-out sample. It printed:

    digits: 357 of 360 held-out images are right, 99.17%
    diabetes: R2 0.553 of 88 held-out persons
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import litert_torch
import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from torch import nn

SEED = 20240
PIXEL_MAX = 16.0  # scikit-learn's digits have pixel values 0..16
CALIBRATION_SAMPLES = 200

Floats = npt.NDArray[np.float32]


class Digits(nn.Module):
    """Two convolutions, a depthwise separable one, two poolings and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()),
            nn.MaxPool2d(2),
            *(nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.BatchNorm2d(24)),
            nn.ReLU(),
            *(nn.Conv2d(24, 48, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU()),
            nn.AvgPool2d(2),
        )
        self.classify = nn.Sequential(nn.Dropout(0.3), nn.Linear(192, 10))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Of (N, 1, 8, 8) in 0..1, the probability of each digit."""
        rows = self.features(pictures).permute(0, 2, 3, 1).flatten(1)
        return torch.softmax(self.classify(rows), dim=-1)


def train_digits(pictures: Floats, labels: npt.NDArray[np.int64], epochs: int = 40) -> nn.Module:
    """A trained network; each picture is also shown moved by one pixel each way."""
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moves = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    moved = [padded[:, row : row + 8, column : column + 8] for row, column in moves]
    shown = torch.from_numpy(np.concatenate(moved).transpose(0, 3, 1, 2).copy())
    truth = torch.from_numpy(np.tile(labels, len(moves)))
    model = Digits()
    loss_of = nn.NLLLoss()

    def loss(batch: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = loss_of(model(shown[batch]).clamp_min(1e-7).log(), truth[batch])
        return found

    _fit(model, loss, len(shown), epochs, rate=2e-3, decay=0.0)
    return model.eval()


def train_diabetes(
    features: Floats, targets: Floats, epochs: int = 60
) -> tuple[nn.Module, float, float]:
    """A trained network, whose answer is in the unit of the targets."""
    middle, spread = float(targets.mean()), float(targets.std())
    body = nn.Sequential(
        *(nn.Linear(features.shape[1], 32), nn.ReLU()),
        *(nn.Linear(32, 16), nn.ReLU()),
        nn.Linear(16, 1),
    )
    shown = torch.from_numpy(features)
    truth = torch.from_numpy((targets - middle) / spread)
    loss_of = nn.MSELoss()

    def loss(batch: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = loss_of(body(shown[batch]), truth[batch])
        return found

    _fit(body, loss, len(shown), epochs, rate=2e-3, decay=3e-2)
    # The last layer answers in the unit of the targets.
    last = body[-1]
    with torch.no_grad():
        last.weight.mul_(spread)
        last.bias.mul_(spread).add_(middle)
    return body.eval()


def _fit(
    model: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    samples: int,
    epochs: int,
    rate: float,
    decay: float,
) -> None:
    """Train on batches of 64, given the loss of the samples with some numbers."""
    batch_size = 64
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    steps = epochs * -(-samples // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(samples).split(batch_size):
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()
            schedule.step()


def make_digits(folder: Path) -> None:
    """digits_float.tflite, digits_calib.npz and digits_labelled.npz."""
    digits = load_digits()
    pictures = (digits.images[..., np.newaxis] / PIXEL_MAX).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, digits.target, test_size=360, random_state=SEED, stratify=digits.target
    )
    model = train_digits(train_x, train_y)
    answers = model(torch.from_numpy(test_x.transpose(0, 3, 1, 2).copy())).detach().numpy()
    right = int((answers.argmax(-1) == test_y).sum())
    print(f"digits: {right} of {len(test_y)} held-out images are right, {right / len(test_y):.2%}")
    channels_last = litert_torch.to_channel_last_io(model, args=[0])
    sample = (torch.zeros(1, 8, 8, 1),)
    litert_torch.convert(channels_last, sample).export(str(folder / "digits_float.tflite"))
    np.savez_compressed(folder / "digits_calib.npz", inputs=train_x[:CALIBRATION_SAMPLES])
    np.savez_compressed(
        folder / "digits_labelled.npz", inputs=test_x, labels=test_y.astype(np.int64)
    )


def make_diabetes(folder: Path) -> None:
    """diabetes_float.tflite, diabetes_calib.npz and diabetes_labelled.npz."""
    persons = load_diabetes(scaled=False)
    train_x, test_x, train_y, test_y = train_test_split(
        persons.data, persons.target[:, np.newaxis], test_size=88, random_state=SEED
    )
    middle, spread = train_x.mean(0), train_x.std(0)
    train_x = ((train_x - middle) / spread).astype(np.float32)
    test_x = ((test_x - middle) / spread).astype(np.float32)
    model = train_diabetes(train_x, train_y.astype(np.float32))
    answers = model(torch.from_numpy(test_x)).detach().numpy()
    r2 = 1 - ((answers - test_y) ** 2).sum() / ((test_y - test_y.mean()) ** 2).sum()
    print(f"diabetes: R2 {r2:.3f} of {len(test_y)} held-out persons")
    sample = (torch.zeros(1, 10),)
    litert_torch.convert(model, sample).export(str(folder / "diabetes_float.tflite"))
    np.savez_compressed(folder / "diabetes_calib.npz", inputs=train_x[:CALIBRATION_SAMPLES])
    np.savez_compressed(
        folder / "diabetes_labelled.npz", inputs=test_x, targets=test_y.astype(np.float32)
    )


def main() -> None:
    """Make all files and print how good the models are."""
    parser = argparse.ArgumentParser(description="train the float models and write their data")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent)
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.use_deterministic_algorithms(True)
    for make in (make_digits, make_diabetes):
        torch.manual_seed(SEED)
        make(folder)


if __name__ == "__main__":
    main()
