"""A net that never saw the digits 8 and 9 learns them on a board, from 50 samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from torch import nn  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
#: How many of the 360 samples are for the first training, and for the training on the board.
FIRST, NEW = 200, 50
EPOCHS, RATE = 20, 0.003


def first_net(inputs: Any, labels: Any) -> nn.Module:
    """A net that was trained on the digits 0 to 7."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    )
    x, y = torch.from_numpy(inputs[labels < 8]), torch.from_numpy(labels[labels < 8])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(80):
        for some in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[some]), y[some]).backward()
            optimizer.step()
    return net.eval()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["host", "mps2_an500"])
def test_new_digits_are_learned_as_by_pytorch(name: str) -> None:
    with np.load(MODELS / "digits_labelled.npz") as data:
        inputs = np.ascontiguousarray(data["inputs"].transpose(0, 3, 1, 2))
        labels = data["labels"]
    inputs /= inputs.max()
    net = first_net(inputs[:FIRST], labels[:FIRST])
    learner = utvm_deploy.trainable(
        net, inputs=(torch.zeros(1, 1, 8, 8),), layers=[-2, -1], rate=RATE, name="digits"
    )
    new = slice(FIRST, FIRST + NEW)
    held_out, right = inputs[FIRST + NEW :], labels[FIRST + NEW :]
    with utvm_deploy.connect(name) as device:
        model = device.load(utvm_deploy.compile(learner, name))
        before = np.array([model(one).argmax() for one in held_out])
        model.train((inputs[new], labels[new]), epochs=EPOCHS)
        after = np.array([model(one).argmax() for one in held_out])
    assert (before == right)[right > 7].mean() == 0
    assert (after == right)[right > 7].mean() > 0.5
    assert (after == right)[right < 8].mean() >= (before == right)[right < 8].mean()
    optimizer = torch.optim.SGD([*net[7].parameters(), *net[9].parameters()], lr=RATE)
    order = np.random.default_rng(0)  # that of DeviceModel.train
    for _ in range(EPOCHS):
        for i in order.permutation(NEW) + FIRST:
            optimizer.zero_grad()
            made = net(torch.from_numpy(inputs[i : i + 1]))
            nn.functional.cross_entropy(made, torch.from_numpy(labels[i : i + 1])).backward()
            optimizer.step()
    theirs = net(torch.from_numpy(held_out)).argmax(1).numpy()
    assert abs((theirs == right).mean() - (after == right).mean()) <= 0.005
