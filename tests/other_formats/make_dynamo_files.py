"""Writes dynamo_*.onnx: blocks of transformers by PyTorch's exporter.

    pip install onnxscript
    python tests/other_formats/make_dynamo_files.py

Written with torch 2.13.0 and onnxscript 0.7.2.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

ROWS, WIDTH, HEADS = 6, 8, 4


class Llama(nn.Module):
    """A block with rotary positions and SwiGLU, whose heads share keys and values in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.shared = WIDTH // HEADS, HEADS // 2
        shared = self.shared * self.size
        self.query, self.key = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, shared)
        self.value, self.made = nn.Linear(WIDTH, shared), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 12, bias=False), nn.Linear(WIDTH, 12, bias=False)
        self.down, self.first, self.second = nn.Linear(12, WIDTH), nn.RMSNorm(WIDTH), nn.RMSNorm(8)
        angles = torch.arange(ROWS)[:, None].repeat(1, self.size)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x: Tensor) -> Tensor:
        """Elements turned by the angles of their places."""
        half = self.size // 2
        exchanged = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * self.cos + exchanged * self.sin

    def forward(self, x: Tensor) -> Tensor:
        """The block on (1, rows, width)."""
        normal = self.first(x)

        def by_head(made: Tensor, heads: int) -> Tensor:
            return made.view(1, ROWS, heads, self.size).transpose(1, 2)

        query = self.turned(by_head(self.query(normal), HEADS))
        key = self.turned(by_head(self.key(normal), self.shared))
        value = by_head(self.value(normal), self.shared)
        read = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.made(read.transpose(1, 2).reshape(1, ROWS, WIDTH))
        normal = self.second(x)
        return x + self.down(silu(self.gate(normal)) * self.up(normal))


def main() -> None:
    """Write the files; what says which line of the module made an operator is left out."""
    import onnx

    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 12, activation="gelu", norm_first=True, batch_first=True
    )
    for name, module, versions in (("encoder", encoder, (18, 23)), ("llama", Llama(), (18,))):
        for version in versions:
            path = Path(__file__).with_name(f"dynamo_{name}_{version}.onnx")
            example = (torch.randn(1, ROWS, WIDTH),)
            torch.onnx.export(
                module.eval(), example, path, opset_version=version, external_data=False
            )
            model = onnx.load(path)
            graph = model.graph
            for one in (model, graph, *graph.node, *graph.value_info, *graph.initializer):
                del one.metadata_props[:]
            onnx.save(model, path)


if __name__ == "__main__":
    main()
