"""Twenty small PyTorch modules, of the kinds that people deploy, with the shape of their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions with batch norms, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Any) -> Any:
        return functional.relu(x + self.body(x))


class UNet(nn.Module):
    """One level down by a pool, and up by a transposed convolution or by interpolation."""

    def __init__(self, *, is_interpolated: bool) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 8, 3, padding=1)
        up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        plain = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 4, 1))
        self.up = plain if is_interpolated else up
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        kept = functional.relu(self.down(x))
        deep = functional.relu(self.middle(functional.max_pool2d(kept, 2)))
        return self.head(torch.cat([kept, self.up(deep)], 1))


class Tcn(nn.Module):
    """Dilated causal convolutions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(4, 4, 3, dilation=2**n) for n in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            before = (layer.kernel_size[0] - 1) * layer.dilation[0]
            x = x + functional.relu(layer(functional.pad(x, (before, 0))))
        return self.head(x[:, :, -1])


class Recurrent(nn.Module):
    """A recurrent layer, and a head on its last step."""

    def __init__(self, layer: nn.Module, features: int) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(features, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = 2, is_causal
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.project(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Strange(nn.Module):
    """Operators that become others before they are quantized, and a mask of minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))
        self.wide, self.mixed = nn.Linear(8, 16), nn.Parameter(torch.randn(8, 8) * 0.4)

    def forward(self, x: Any) -> Any:
        x = self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        x = functional.glu(self.wide(x)).roll(2, 1).flip(1)
        return functional.mish(torch.einsum("bij,jk->bik", x, self.mixed)).max(1)[0]


class Mixed(nn.Module):
    """In its middle is an operator without a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        inverse = torch.linalg.inv(torch.diag_embed(self.body(x) + 1))
        return self.head(inverse.sum(-1))


def _seen(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The module in evaluation; its batch norms have seen some data."""
    module.train()
    with torch.no_grad():
        for _ in range(4):
            module(torch.randn(8, *shape[1:]) * 1.5 + 0.3)
    return module.eval()


def _with_norm(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(8, 4, 1))


_IMAGE, _SEQUENCE = (1, 3, 8, 8), (1, 6, 8)

#: Name -> what makes the module, and the shape of its input.
MODULES: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), (1, 16)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU6(), nn.Flatten(), nn.Linear(128, 5)
        ),
        _IMAGE,
    ),
    "depthwise": (
        lambda: nn.Sequential(
            *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish()),
            *(nn.Conv2d(8, 4, 1), nn.AvgPool2d(2)),
        ),
        (1, 8, 6, 6),
    ),
    "residual": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Residual(6)), _IMAGE),
    "unet": (lambda: UNet(is_interpolated=False), (1, 2, 8, 8)),
    "unet_bilinear": (lambda: UNet(is_interpolated=True), (1, 2, 8, 8)),
    "tcn": (Tcn, (1, 4, 16)),
    "gru": (lambda: Recurrent(nn.GRU(4, 6, batch_first=True), 6), (1, 5, 4)),
    "lstm": (lambda: Recurrent(nn.LSTM(4, 6, batch_first=True), 6), (1, 5, 4)),
    "attention": (lambda: Attention(is_causal=False), _SEQUENCE),
    "causal_attention": (lambda: Attention(is_causal=True), _SEQUENCE),
    "strange": (Strange, _SEQUENCE),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        _SEQUENCE,
    ),
    "layer_norm": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
        _SEQUENCE,
    ),
    "rms_norm": (lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.SiLU()), _SEQUENCE),
    "group_norm": (lambda: _with_norm(nn.GroupNorm(2, 8)), _IMAGE),
    "instance_norm": (lambda: _with_norm(nn.InstanceNorm2d(8, affine=True)), _IMAGE),
    "batch_norm_first": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.LeakyReLU(0.2)),
        _IMAGE,
    ),
    "decoder": (
        lambda: nn.Sequential(
            *(nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, output_padding=1), nn.Tanh()),
            nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1),
        ),
        (1, 4, 4, 4),
    ),
    "activations": (
        lambda: nn.Sequential(
            *(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 8)),
            *(nn.PReLU(), nn.Linear(8, 4), nn.Softmax(-1)),
        ),
        (1, 8),
    ),
    "conv1d_classifier": (
        lambda: nn.Sequential(
            *(nn.Conv1d(2, 8, 5, stride=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(8, 8, 3), nn.Sigmoid(), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
            nn.Linear(8, 3),
        ),
        (1, 2, 32),
    ),
}


def module_named(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A module in evaluation, always with the same weights, and the shape of its input."""
    torch.manual_seed(0)
    make, shape = MODULES[name]
    return _seen(make(), shape), shape
