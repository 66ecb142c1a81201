"""Writes examples/sparse_dense.tflite: a dense layer of 512x128 with 90 % zeros in blocks of 1x4.

    python examples/sparse_dense.py

The file stores the blocks that are left, as TFLite's converter does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from sparse_writer import sparsified  # noqa: E402
from tflite_writer import ModelWriter  # noqa: E402

FILE = Path(__file__).with_suffix(".tflite")


def pruned(
    rng: np.random.Generator, outputs: int, inputs: int, zeros: float, block: int
) -> np.ndarray:
    """Int8 weights of which exactly this share of blocks are zeros."""
    weights = rng.integers(-127, 128, (outputs, inputs))
    weights[weights == 0] = 1
    is_kept = np.zeros(outputs * inputs // block, bool)
    is_kept[rng.permutation(is_kept.size)[round(is_kept.size * zeros) :]] = True
    kept = np.repeat(is_kept, block).reshape(outputs, inputs)
    return (weights * kept).astype(np.int8)


def model() -> ModelWriter:
    """The layer."""
    rng = np.random.default_rng(1)
    weights = pruned(rng, 128, 512, 0.9, 4)
    bias = rng.integers(-900, 900, 128).astype(np.int32)
    m = ModelWriter()
    x = m.input((1, 512), scale=0.05, zero_point=3)
    m.output(m.fully_connected(x, weights, bias, scale=0.9, weight_scale=0.02))
    stored = m.tensors[m.operators[0].inputs[1]]
    stored.sparsity, stored.data = sparsified(weights, (1,), {1: 4})
    return m


if __name__ == "__main__":
    model().save(FILE)
