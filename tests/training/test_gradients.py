"""A train step on a device beside PyTorch's: gradients, losses and what optimizers make of them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from random_nets import random_net  # noqa: E402
from torch import nn  # noqa: E402
from training_nets import (  # noqa: E402
    NETS,
    as_stored,
    moved,
    net_of,
    set_weights,
    states_of,
)

# To load PyTorch takes seconds.
pytestmark = pytest.mark.slow

#: The largest difference of a gradient, relative to the largest gradient of its tensor.
BOUND = 1e-5
#: A gradient below this share of the largest one of the net counts as 0.
NOTHING = 1e-2


def check_gradients(name: str, loss: str, device: Device, steps: int) -> float:
    """Steps that begin with PyTorch's weights; the largest relative difference of a gradient.

    The optimizer's first velocity is the gradient.
    """
    module, example = net_of(name)
    made = utvm_deploy.trainable(
        module, inputs=(example,), loss=loss, optimizer="momentum", layers="all"
    )
    model = device.load(utvm_deploy.compile(made, device.board))
    rng, worst = np.random.default_rng(1), 0.0
    parameters = moved(made.weights, module)
    optimizer = torch.optim.SGD(parameters.values(), lr=0.005, momentum=0.9)
    classes = module(example).shape[-1]
    for _ in range(steps):
        x = rng.standard_normal(tuple(example.shape)).astype(np.float32)
        label: Any = rng.integers(0, classes, len(x))
        if loss == "mse":
            label = rng.standard_normal((len(x), classes)).astype(np.float32)
        set_weights(model, parameters)
        found, _ = model.train_step((x,), label)
        optimizer.zero_grad()
        wanted = torch_loss(module, loss, x, label)
        wanted.backward()
        assert found == pytest.approx(wanted.item(), rel=1e-5)
        states = states_of(model)
        for key, parameter in parameters.items():
            right = as_stored(parameter.grad, states[key].shape)
            off = np.abs(states[f"{key} velocity"] - right).max()
            # A gradient of zeros, as behind a ReLU that gives only them, is exact.
            worst = max(worst, float(off / (np.abs(right).max() or 1e-30)))
        optimizer.step()
    model.unload()
    return worst


def torch_loss(module: nn.Module, loss: str, x: Any, label: Any) -> Any:
    made = module(torch.from_numpy(x))
    if loss == "mse":
        return nn.functional.mse_loss(made, torch.from_numpy(label))
    if isinstance(module, nn.Sequential) and isinstance(module[-1], nn.Softmax):
        return nn.functional.nll_loss(torch.log(made), torch.from_numpy(label))
    return nn.functional.cross_entropy(made, torch.from_numpy(label))


@pytest.mark.spread(1, among=("mps2_an500", "mps3_an547"))
@pytest.mark.parametrize("name", ["small", "convolutions"])
def test_gradients_on_boards(name: str, device: Device) -> None:
    assert check_gradients(name, "cross_entropy", device, 10) <= BOUND


@pytest.mark.parametrize(
    ("name", "loss", "steps"),
    [
        ("attention", "cross_entropy", 100),
        ("averaging", "cross_entropy", 10),
        ("grouped", "cross_entropy", 10),
        ("mixer", "mse", 10),
    ],
)
def test_gradients_are_those_of_pytorch(name: str, loss: str, steps: int, host: Device) -> None:
    assert check_gradients(name, loss, host, steps) <= BOUND


@pytest.mark.soak
@pytest.mark.parametrize("name", NETS)
def test_gradients_are_those_of_pytorch_for_many_steps(name: str, host: Device) -> None:
    assert check_gradients(name, "cross_entropy", host, 100) <= BOUND


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_weights_follow_those_of_pytorch(optimizer: str, host: Device) -> None:
    module, example = net_of("small")
    made = utvm_deploy.trainable(
        module, inputs=(example,), optimizer=optimizer, layers="all", rate=0.02
    )
    model = host.load(utvm_deploy.compile(made, "host"))
    parameters = moved(made.weights, module)
    theirs = {
        "sgd": lambda: torch.optim.SGD(parameters.values(), lr=0.02),
        "momentum": lambda: torch.optim.SGD(parameters.values(), lr=0.02, momentum=0.9),
        "adam": lambda: torch.optim.Adam(parameters.values(), lr=0.02),
    }[optimizer]()
    rng = np.random.default_rng(2)
    for _ in range(10):
        x, label = rng.standard_normal((1, 1, 4, 4)).astype(np.float32), rng.integers(0, 4, 1)
        model.train_step((x,), label)
        theirs.zero_grad()
        torch_loss(module, "cross_entropy", x, label).backward()
        theirs.step()
    states = states_of(model)
    for key, parameter in parameters.items():
        right = as_stored(parameter, states[key].shape)
        np.testing.assert_allclose(states[key], right, atol=2e-4)
    model.unload()


class Ends(nn.Module):
    """Functions, of which most have a kink or overflow at an input that is exactly there."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        nn.init.eye_(self.first.weight)
        nn.init.zeros_(self.first.bias)

    def forward(self, x: Any) -> Any:
        x, f = self.first(x), nn.functional
        made = [torch.relu(x), f.relu6(x), x.clamp(-1, 1), x.clamp(max=3), f.leaky_relu(x)]
        made += [f.hardswish(x), f.hardsigmoid(x), f.softplus(x), f.mish(x), f.celu(x)]
        return torch.cat([*made, f.elu(x[:, 1:])], 1)


def test_gradients_at_the_ends_of_functions(host: Device) -> None:
    net, x = Ends(), np.array([[0, -3, -1, 1, 3, 6, 100, -100]], np.float32)
    given = torch.from_numpy(x)
    made = utvm_deploy.trainable(
        net, inputs=(given,), loss="mse", optimizer="momentum", layers="all"
    )
    model = host.load(utvm_deploy.compile(made, "host"))
    target = np.ones((1, 87), np.float32)
    model.train_step((x,), target)
    torch_loss(net, "mse", x, target).backward()
    assert net.first.bias.grad is not None
    found = states_of(model)["first.bias velocity"]
    np.testing.assert_allclose(found, net.first.bias.grad.numpy(), rtol=1e-5, atol=1e-6)
    model.unload()


def states_after_step(
    model: CompiledModel, values: Mapping[str, Any], x: Any, label: Any
) -> dict[str, Any]:
    """The states after one step from these weights, by the C alone: no image is built.

    To optimize a program that runs once costs more than the run.
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: sudo apt install gcc")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in model.sources.items():
            Path(folder, name).write_text(text)
        sources, library = Path(folder).glob("*.c"), Path(folder, "net.so")
        command = [compiler, "-O0", "-shared", "-fPIC", f"-I{folder}", *map(str, sources), "-lm"]
        subprocess.run([*command, "-o", str(library)], check=True, timeout=120)
        functions = ctypes.CDLL(str(library))
    arena = np.zeros(model.arena_bytes + 64, np.uint8)
    arena = arena[-arena.ctypes.data % 64 :]
    functions[f"{model.name}_reset"](ctypes.c_void_p(arena.ctypes.data))
    states = {
        one.name: arena[one.offset : one.offset + one.size_bytes].view(np.float32)
        for one in model.states
        if one.dtype == "float32"
    }
    for one in model.states:
        if one.name in values:
            states[one.name][:] = as_stored(values[one.name], one.shape).ravel()
    given = arena, x, label.astype(np.int32), np.zeros(1, np.float32)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in given]
    assert functions[f"{model.name}_train_step"](*pointers) == 0
    return {one.name: states[one.name].reshape(one.shape) for one in model.states[1:]}


def check_random(seed: int) -> tuple[float, float]:
    """Gradients of a random net beside those of PyTorch in float64, which are looked at, too.

    The largest difference relative to the largest gradient of its tensor: ours, and PyTorch's in
    float32. Along a direction, those in float64 are the difference of the losses.
    """
    module, example = random_net(seed)
    made = utvm_deploy.trainable(module, inputs=(example,), optimizer="momentum", layers="all")
    model = utvm_deploy.compile(made, "host")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(tuple(example.shape)).astype(np.float32)
    label = rng.integers(0, 3, len(x))
    parameters = moved(made.weights, module)
    states = states_after_step(model, parameters, x, label)
    torch_loss(module, "cross_entropy", x, label).backward()
    shorter = {key: one.grad.numpy().copy() for key, one in parameters.items()}
    module.double().zero_grad()
    torch_loss(module, "cross_entropy", x.astype(float), label).backward()
    step, ours, theirs = 1e-6, 0.0, 0.0
    largest = max(float(one.grad.abs().max()) for one in parameters.values())
    for key, parameter in parameters.items():
        start = parameter.detach().clone()
        along = torch.from_numpy(rng.standard_normal(tuple(start.shape)))
        losses = []
        with torch.no_grad():
            for sign in (1, -1):
                parameter.copy_(start + sign * step * along)
                losses.append(torch_loss(module, "cross_entropy", x.astype(float), label).item())
            parameter.copy_(start)
        slope = float((parameter.grad * along).sum())
        size = float((parameter.grad * along).abs().sum())
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(slope, abs=1e-5 * size + 1e-8)
        right = as_stored(parameter.grad, states[key].shape)
        # What rounding leaves of a gradient that is 0 is compared with the largest of all.
        scale = max(float(np.abs(right).max()), NOTHING * largest)
        found = np.abs(states[f"{key} velocity"] - right).max() / scale
        assert np.isfinite(found), f"seed {seed}, {key}"
        ours = max(ours, float(found))
        theirs = max(theirs, float(np.abs(shorter[key] - parameter.grad.numpy()).max() / scale))
    return ours, theirs


def is_right(ours: float, theirs: float) -> bool:
    """Whether a difference is what float32 permits: 1e-5, or as much as PyTorch's in float32."""
    return ours <= max(BOUND, 4 * theirs)


def test_max_pools_that_overlap() -> None:
    """TVM's gradient reads behind the last window, and finds a largest pixel there."""
    torch.manual_seed(0)
    pools = nn.MaxPool2d(3, 1), nn.MaxPool2d(2, 1), nn.MaxPool2d((3, 2), 2, 1)
    net = nn.Sequential(nn.Conv2d(2, 4, 1), *pools, nn.Flatten(), nn.Linear(36, 3))
    x, label = torch.randn(2, 2, 8, 8), np.array([0, 2])
    made = utvm_deploy.trainable(net, inputs=(x,), optimizer="momentum", layers="all")
    parameters = moved(made.weights, net)
    model = utvm_deploy.compile(made, "host")
    states = states_after_step(model, parameters, x.numpy(), label)
    torch_loss(net, "cross_entropy", x.numpy(), label).backward()
    for key, parameter in parameters.items():
        right = as_stored(parameter.grad, states[key].shape)
        found = np.abs(states[f"{key} velocity"] - right).max()
        assert found <= BOUND * np.abs(right).max(), key


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_random_nets(seed: int) -> None:
    assert is_right(*check_random(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [one for one in range(200) if one % 10])
def test_many_random_nets(seed: int) -> None:
    assert is_right(*check_random(seed))
