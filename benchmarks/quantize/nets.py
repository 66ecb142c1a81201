"""Ten nets of PyTorch with their data, made from seeds: five hard ones, and five ordinary ones.

A hard net has what quantizers are known to fail on. Scales of channels and outliers are put in
after training, by factors that the next layer takes out again: in float32, the net computes the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

CLASSES, CALIBRATION, HELD_OUT, TRAINED = 8, 256, 256, 1024
STEPS, BATCH = 150, 64
SIZE, TIMES, FEATURES = 16, 16, 12


@dataclass(frozen=True, eq=False)
class Net:
    """A trained net, and the data that it is quantized and judged with."""

    name: str
    module: nn.Module
    calibration: Any
    held_out: Any
    labels: Any  # of the held-out data; None without classes


class Bottleneck(nn.Module):
    """1x1, depthwise 3x3 and 1x1, as in MobileNet v2; with a gate by the means of channels, too."""

    def __init__(self, channels: int, wide: int, made: int, act: nn.Module, gated: bool) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide))
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide)
        )
        self.project = nn.Sequential(nn.Conv2d(wide, made, 1), nn.BatchNorm2d(made))
        self.act, self.adds = act, channels == made
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, wide // 4, 1),
            act,
            nn.Conv2d(wide // 4, wide, 1),
            nn.Sigmoid(),
        )
        self.gated = gated

    def forward(self, x: Any) -> Any:
        """The block's result."""
        y = self.act(self.depthwise(self.act(self.expand(x))))
        if self.gated:
            y = y * self.gate(y)
        y = self.project(y)
        return x + y if self.adds else y


def _stem(channels: int, act: nn.Module) -> list[nn.Module]:
    return [nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), act]


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def _bottlenecks(act: nn.Module, gated: bool) -> nn.Module:
    sizes = [(12, 36, 12), (12, 36, 16), (16, 48, 16)]
    blocks = [Bottleneck(*size, act, gated) for size in sizes]
    return nn.Sequential(*_stem(12, act), *blocks, *_head(16))


class Layer(nn.Module):
    """A layer of a transformer, with its norms in front."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = 4

    def forward(self, x: Any) -> Any:
        """The layer's result."""
        batch, times, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, times, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, times, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Two layers; the class by the mean over time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.place = nn.Parameter(torch.randn(1, TIMES, width) * 0.1)
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        """Scores of classes."""
        return self.head(self.norm(self.layers(self.embed(x) + self.place)).mean(1))


class Recurrent(nn.Module):
    """A GRU; the class by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(FEATURES, 32, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, x: Any) -> Any:
        """Scores of classes."""
        return self.head(self.gru(x)[0][:, -1])


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Any) -> Any:
        """The block's result."""
        return torch.relu(x + self.body(x))


def _autoencoder() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 8, 1), nn.ConvTranspose2d(8, 16, 2, stride=2), nn.ReLU()),
        *(nn.ConvTranspose2d(16, 12, 2, stride=2), nn.ReLU(), nn.Conv2d(12, 3, 3, padding=1)),
    )


def _separable() -> nn.Module:
    blocks: list[nn.Module] = []
    for _ in range(3):
        blocks += [nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU()]
        blocks += [nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*_stem(16, nn.ReLU()), *blocks, *_head(16))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(12, 20, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(80, CLASSES)),
    )


def _dense() -> nn.Module:
    width = TIMES * FEATURES
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()),
        nn.Linear(32, CLASSES),
    )


class InTime(nn.Module):
    """Convolutions along time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(FEATURES, 24, 3, padding=1), nn.BatchNorm1d(24), nn.ReLU()),
            *(nn.Conv1d(24, 24, 3, padding=2, dilation=2), nn.BatchNorm1d(24), nn.ReLU()),
        )
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Any) -> Any:
        """Scores of classes."""
        return self.head(self.body(x.transpose(1, 2)).mean(2))


def _scale_channels(net: nn.Module, rng: np.random.Generator) -> None:
    """Give the channels inside of blocks very different scales, which the next layer undoes."""
    for block in net.modules():
        if isinstance(block, Bottleneck):
            for norm, following in (
                (block.expand[1], block.depthwise[0]),
                (block.depthwise[1], block.project[0]),
            ):
                scales = np.exp(rng.uniform(-2.5, 2.5, norm.num_features))
                factors = torch.tensor(scales, dtype=torch.float32)
                norm.weight.mul_(factors)
                norm.bias.mul_(factors)
                is_depthwise = following.groups > 1
                shape = (-1, 1, 1, 1) if is_depthwise else (1, -1, 1, 1)
                following.weight.div_(factors.view(shape))


def _add_outliers(net: nn.Module, rng: np.random.Generator) -> None:
    """Enlarge two channels of each norm, which the next layer undoes."""
    for layer in net.modules():
        if isinstance(layer, Layer):
            for norm, following in zip(layer.norms, (layer.qkv, layer.up), strict=True):
                factors = torch.ones(len(norm.weight))
                factors[rng.choice(len(factors), 2, replace=False)] = 20.0
                norm.weight.mul_(factors)
                norm.bias.mul_(factors)
                following.weight.div_(factors)


def _nothing(net: nn.Module, rng: np.random.Generator) -> None:
    pass


@dataclass(frozen=True)
class Kind:
    """How a net is made."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    harden: Callable[[nn.Module, np.random.Generator], None] = _nothing
    is_classifier: bool = True


_IMAGE, _SERIES = (3, SIZE, SIZE), (TIMES, FEATURES)
HARD: Mapping[str, Kind] = {
    "depthwise": Kind(lambda: _bottlenecks(nn.ReLU(), False), _IMAGE, _scale_channels),
    "squeeze-excite": Kind(lambda: _bottlenecks(nn.SiLU(), True), _IMAGE),
    "transformer": Kind(Transformer, _SERIES, _add_outliers),
    "gru": Kind(Recurrent, _SERIES),
    "autoencoder": Kind(_autoencoder, _IMAGE, is_classifier=False),
}
ORDINARY: Mapping[str, Kind] = {
    "convolutions": Kind(_convolutions, _IMAGE),
    "residual": Kind(
        lambda: nn.Sequential(*_stem(16, nn.ReLU()), Residual(16), Residual(16), *_head(16)), _IMAGE
    ),
    "separable": Kind(_separable, _IMAGE),
    "dense": Kind(_dense, _SERIES),
    "in-time": Kind(InTime, _SERIES),
}


def _smooth(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> Any:
    """Noise whose neighbors are alike along the last axis, and along the one before of images."""
    noise = rng.normal(0, 1, (count, *shape))
    axes = (-2, -1) if len(shape) == 3 else (-2,)
    squares = 0.0
    for axis in axes:
        wave = np.square(np.fft.fftfreq(noise.shape[axis]))
        squares = squares + wave.reshape([-1, *[1] * (-axis - 1)])
    made = np.fft.ifftn(np.fft.fftn(noise, axes=axes) / (0.05 + np.sqrt(squares)), axes=axes).real
    return made / made.std()


def _data(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Samples of classes: a pattern each, of any contrast, in noise."""
    count = TRAINED + CALIBRATION + HELD_OUT
    labels = rng.integers(0, CLASSES, count)
    patterns = _smooth(rng, CLASSES, shape)
    each = (count, *[1] * len(shape))
    made = patterns[labels] + 0.8 * _smooth(rng, count, shape)
    made *= np.exp(rng.normal(0, 0.4, each))
    return torch.tensor(made, dtype=torch.float32), torch.tensor(labels)


def made_net(name: str) -> Net:
    """The net of this name, trained."""
    known = {**HARD, **ORDINARY}
    kind, seed = known[name], list(known).index(name)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, labels = _data(rng, kind.shape)
    net = kind.make()
    adam = torch.optim.Adam(net.parameters(), lr=0.003)
    net.train()
    for _ in range(STEPS):
        rows = torch.tensor(rng.integers(0, TRAINED, BATCH))
        adam.zero_grad()
        given = net(x[rows])
        loss = (
            nn.functional.cross_entropy(given, labels[rows])
            if kind.is_classifier
            else (nn.functional.mse_loss(given, x[rows]))
        )
        loss.backward()
        adam.step()
    net.eval()
    with torch.no_grad():
        kind.harden(net, rng)
    calibration, held_out = x[TRAINED : TRAINED + CALIBRATION], x[TRAINED + CALIBRATION :]
    classes = labels[TRAINED + CALIBRATION :] if kind.is_classifier else None
    return Net(name, net, calibration, held_out, classes)
