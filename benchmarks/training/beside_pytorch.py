"""100 train steps on a board beside PyTorch's: gradients, and two runs that nobody corrects.

    python benchmarks/training/beside_pytorch.py [--board B ...] [--net N ...] [--steps S]

In the first part, each step begins with PyTorch's weights. The gradient is the first velocity of
the optimizer with momentum, so no rounding of a weight hides it. In the second part, both sides
begin with the same weights, and train by themselves on the same samples.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "training"))

from training_nets import as_stored, moved, net_of, set_weights, states_of

import utvm_deploy
from utvm_deploy.device import Device, DeviceModel

#: A small net of convolutions, one of dense layers, and a block with layer norm and attention.
NETS = ("convolutions", "small", "attention")
BOARDS = ("host", "mps2_an500", "mps3_an547")
#: The rate of the optimizer, and the classes of the samples' labels.
RATE, SEED = 0.005, 1


def main(boards: list[str], nets: list[str], steps: int) -> None:
    print(f"{steps} steps; the largest difference of a gradient over the largest of its tensor")
    for board in boards:
        with utvm_deploy.connect(board) as device:
            for name in nets:
                print(f"{name} on {board}: {_compared(name, device, steps)}", flush=True)


def _compared(name: str, device: Device, steps: int) -> str:
    module, example = net_of(name)
    made = utvm_deploy.trainable(
        module, inputs=(example,), optimizer="momentum", layers="all", rate=RATE
    )
    model = device.load(utvm_deploy.compile(made, device.board))
    worst = _gradients(module, example, model, made.weights, steps)
    module, _ = net_of(name)
    return f"{worst:.1e}; alone: {_free(module, example, model, made.weights, steps)}"


def _gradients(
    module: Any, example: Any, model: DeviceModel, weights: tuple[str, ...], steps: int
) -> float:
    """The largest relative difference of steps that begin with PyTorch's weights."""
    parameters, worst = moved(weights, module), 0.0
    optimizer = torch.optim.SGD(parameters.values(), lr=RATE, momentum=0.9)
    for x, label in _samples(module, example, steps):
        set_weights(model, parameters)
        model.train_step((x,), label)
        _step(module, optimizer, x, label)
        states = states_of(model)
        for key, parameter in parameters.items():
            right = as_stored(parameter.grad, states[key].shape)
            off = np.abs(states[f"{key} velocity"] - right).max()
            worst = max(worst, float(off / (np.abs(right).max() or 1e-30)))
    return worst


def _free(
    module: Any, example: Any, model: DeviceModel, weights: tuple[str, ...], steps: int
) -> str:
    """The losses of both on the way, and the largest difference of a weight at the end."""
    parameters, told = moved(weights, module), []
    optimizer = torch.optim.SGD(parameters.values(), lr=RATE, momentum=0.9)
    set_weights(model, parameters)
    for number, (x, label) in enumerate(_samples(module, example, steps), 1):
        ours, _ = model.train_step((x,), label)
        theirs = _step(module, optimizer, x, label)
        if number in (1, steps // 2, steps):
            told.append(f"step {number} loss {ours:.6f} and {theirs:.6f}")
    states, off = states_of(model), 0.0
    for key, parameter in parameters.items():
        right = as_stored(parameter, states[key].shape)
        off = max(off, float(np.abs(states[key] - right).max() / np.abs(right).max()))
    return ", ".join([*told, f"weights differ by {off:.1e} of the largest"])


def _samples(module: Any, example: Any, steps: int) -> Any:
    rng, classes = np.random.default_rng(SEED), module(example).shape[-1]
    for _ in range(steps):
        x = rng.standard_normal(tuple(example.shape)).astype(np.float32)
        yield x, rng.integers(0, classes, len(x))


def _step(module: Any, optimizer: Any, x: Any, label: Any) -> float:
    optimizer.zero_grad()
    made = module(torch.from_numpy(x))
    loss = torch.nn.functional.cross_entropy(made, torch.from_numpy(label))
    loss.backward()
    optimizer.step()
    return float(loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--board", nargs="+", default=list(BOARDS))
    parser.add_argument("--net", nargs="+", default=list(NETS), choices=NETS)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    main(arguments.board, arguments.net, arguments.steps)
