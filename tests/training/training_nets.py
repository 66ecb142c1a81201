"""Small PyTorch modules that train, and one step of them on a device and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from utvm_deploy.device import DeviceModel


class Convolutions(nn.Module):
    """Convolutions of all kinds, a frozen batch normalization, pools and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, stride=2, groups=4)
        self.norm = nn.BatchNorm2d(4)
        self.point = nn.Conv2d(4, 6, 1)
        self.head = nn.Linear(6 * 2 * 2, 10)
        self.norm.running_mean.uniform_(-0.5, 0.5)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Any) -> Any:
        x = torch.max_pool2d(torch.relu(self.first(x)), 2)
        x = nn.functional.relu6(self.norm(self.depthwise(x)))
        return self.head(nn.functional.leaky_relu(self.point(x)).flatten(1))


class Attention(nn.Module):
    """A block of a transformer with two heads; the last step of the sequence decides."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (one.reshape(batch, steps, 2, 4).transpose(1, 2) for one in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        return self.head(x[:, -1])


def mixer() -> nn.Module:
    """Dense layers with a layer normalization and the activations of transformers."""
    return nn.Sequential(
        *(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16)),
        *(nn.Linear(16, 8), nn.SiLU(), nn.Linear(8, 8), nn.Tanh()),
        nn.Linear(8, 5),
    )


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def averaging() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, stride=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3), nn.Softmax(-1)),
    )


def grouped() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), nn.ReLU6()),
        *(nn.Conv2d(6, 12, (2, 3), stride=(1, 2), groups=6), nn.LeakyReLU(0.1)),
        *(nn.Conv2d(12, 4, 1, stride=2), nn.Flatten(), nn.Linear(8, 3)),
    )


#: Name -> what makes the module, and the shape of its input.
NETS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (Convolutions, (2, 1, 8, 8)),
    "attention": (Attention, (2, 5, 8)),
    "mixer": (mixer, (3, 12)),
    "small": (small, (1, 1, 4, 4)),
    "averaging": (averaging, (1, 2, 9, 9)),
    "grouped": (grouped, (1, 4, 8, 9)),
}


def net_of(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The module, seeded and in evaluation, and an example of its input."""
    torch.manual_seed(7)
    make, shape = NETS[name]
    return make().eval(), torch.zeros(shape)


def moved(names: tuple[str, ...], module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of the module by the names of the trainable model, in their order."""
    known = dict(module.named_parameters())
    kinds = (nn.LayerNorm, nn.GroupNorm)
    norms = {name for name, one in module.named_modules() if isinstance(one, kinds)}

    def own(name: str) -> str:
        layer, _, what = name.rpartition(".")
        what = {"scale": "weight", "shift": "bias"}[what] if layer in norms else what
        return f"{layer}.{what}"

    return {name: known[own(name)] for name in names}


def as_stored(parameter: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A parameter, or its gradient, as the device has it.

    Dense weights are transposed, and those of convolutions have their channels last.
    """
    array = parameter.detach().numpy()
    array = np.moveaxis(array, 1, -1) if array.ndim == 4 else array
    return np.ascontiguousarray(array.T if array.ndim == 2 else array).reshape(shape)


def set_weights(model: DeviceModel, values: Mapping[str, Any]) -> None:
    """Write weights, and zeros into what the optimizer knows."""
    states = model.state()
    for number, buffer in enumerate(model.compiled.states):
        if buffer.name in values:
            states[number] = as_stored(values[buffer.name], buffer.shape).tobytes()
        elif buffer.name != "learning rate":
            states[number] = bytes(len(states[number]))
    model.set_state(states)


def states_of(model: DeviceModel) -> dict[str, np.ndarray[Any, Any]]:
    """The states of float32 by their names."""
    return {
        buffer.name: np.frombuffer(raw, np.float32).reshape(buffer.shape)
        for buffer, raw in zip(model.compiled.states, model.state(), strict=True)
        if buffer.dtype == "float32"
    }
