"""Seeded PyTorch modules of the operators that have gradients: images, rows or sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


class Around(nn.Module):
    """A layer whose input is joined to its output by a sum, a product or a concatenation."""

    def __init__(self, inner: nn.Module, how: str) -> None:
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        if self.how == "cat":
            return torch.cat([y, x], 1)
        return x + y if self.how == "sum" else x * torch.sigmoid(y)


class Heads(nn.Module):
    """Attention of two heads, causal or not, among the rows of [batch, steps, width]."""

    def __init__(self, width: int, is_causal: bool) -> None:
        super().__init__()
        self.qkv, self.is_causal = nn.Linear(width, 3 * width), is_causal

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        parts = self.qkv(x).reshape(batch, steps, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return made.transpose(1, 2).reshape(batch, steps, width)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def moved_parts(x: Any) -> Any:
    """Moves, cuts and pads."""
    first, second = x.chunk(2, -1)[:2]
    return nn.functional.pad(torch.cat([second, first], -1), (1, 0)).transpose(1, -1)


def repeated(x: Any) -> Any:
    """Copies that are apart, and copies of one element."""
    wide = x.repeat(1, *(1 for _ in x.shape[2:]), 2)
    return wide * x.mean(-1, keepdim=True).expand(*x.shape[:-1], wide.shape[-1])


def random_net(seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A net in evaluation, and an example of its input; its last layer has three outputs."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    def activation() -> nn.Module:
        smooth = (nn.Tanh(), nn.Sigmoid(), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.Softplus())
        kinked = (nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.1), nn.Hardswish(), nn.Hardsigmoid())
        others = (nn.ELU(), nn.CELU(), nn.Mish(), nn.PReLU(), Of(lambda x: x.clamp(-0.3, 0.4)))
        return one(*smooth, *kinked, *others)  # type: ignore[no-any-return]

    def image(shape: tuple[int, ...]) -> list[nn.Module]:
        channels, smaller = shape[1], min(shape[2:])
        size, dilation = one((1, 1), (2, 1), (3, 1), (2, 2))
        pad = int(rng.integers(0, size * dilation))
        fits = smaller + 2 * pad > 2 * dilation * (size - 1)
        given = {"stride": one(1, 2), "padding": pad, "dilation": dilation if fits else 1}
        size = size if fits else 1
        groups = one(1, channels)
        made: list[nn.Module] = [nn.Conv2d(channels, 2 * channels, size, groups=groups, **given)]
        norm = nn.BatchNorm2d(2 * channels)
        norm.running_mean.uniform_(-0.5, 0.5)
        made += [one(nn.Identity(), norm, nn.GroupNorm(channels, 2 * channels)), activation()]
        inner = nn.Conv2d(2 * channels, 2 * channels, 1)
        made.append(one(nn.Identity(), Around(inner, one("sum", "mul", "cat"))))
        pools = (nn.AvgPool2d(2, 1, 1), nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1), nn.ZeroPad2d(1))
        larger = (
            nn.Upsample(scale_factor=2),
            nn.Upsample(size=(5, 7), mode="bilinear"),
            nn.Upsample(size=(6, 5), mode="bilinear", align_corners=True),
        )
        return [*made, one(nn.Identity(), *larger, *pools, Of(repeated))]

    def rows(width: int) -> list[nn.Module]:
        wider = int(rng.integers(4, 8))
        norms = (nn.LayerNorm(wider), nn.RMSNorm(wider), nn.LogSoftmax(-1), nn.Softmax(-1))
        made = [nn.Linear(width, wider), activation(), one(nn.Identity(), *norms, Of(repeated))]
        width = 2 * wider if isinstance(made[-1], Of) else wider
        return [*made, one(nn.Identity(), Around(nn.Linear(width, width), one("sum", "mul")))]

    batch = int(rng.integers(1, 3))
    kind = one("image", "rows", "sequence")
    shape = {"image": (batch, 2, 8, 7), "rows": (batch, 6), "sequence": (batch, 3, 4)}[kind]
    example, layers = torch.zeros(shape), list[nn.Module]()
    for _ in range(int(rng.integers(1, 3))):
        now = tuple(nn.Sequential(*layers).eval()(example).shape)
        if kind == "image" and min(now[2:]) >= 3:
            layers += image(now)
        elif kind == "sequence":
            inner = one(Heads(now[2], bool(rng.integers(2))), nn.Linear(now[2], now[2]))
            layers += [nn.LayerNorm(now[2]), Around(inner, "sum"), one(nn.Identity(), activation())]
        elif kind == "rows":
            layers += rows(now[1])
    if kind == "sequence" and rng.integers(2):
        layers.append(Of(moved_parts))
    if kind == "image":
        layers.append(one(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((2, 3))))
    now = tuple(nn.Sequential(*layers, nn.Flatten()).eval()(example).shape)
    layers += [nn.Flatten(), nn.Linear(now[1], 3)]
    net = nn.Sequential(*layers).eval()
    for parameter in net.parameters():
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            # Norms begin with equal numbers, which would hide an error.
            nn.init.uniform_(parameter, 0.5, 1.5)
    return net, example
