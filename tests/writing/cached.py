"""A language model whose scores depend on all earlier tokens: a step of it, or a block of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bigrams import LENGTH, PIECES, WORDS
from tflite_writer import ModelWriter

from utvm_deploy.frontend.files import tflite_schema
from utvm_deploy.frontend.vocabulary import VOCABULARY

SCALE = 0.1


def cached(
    path: Path,
    tokens: int = 1,
    *,
    scale: float = SCALE,
    name: str = "cache",
    has_relu: bool = False,
) -> Path:
    """Save a step, or a block of more tokens at the position of the first one.

    Both have the same weights in steps; ``scale`` is that of the scores.
    """
    rng = np.random.default_rng(20264)
    m, count = ModelWriter(), len(PIECES)
    table = m.constant(rng.integers(-90, 91, (count, count), np.int8), scale)
    weights = rng.integers(-60, 61, (count, count), np.int8)
    token = m.tensor((tokens,), "int32", name="token")
    position = m.tensor((1,), "int32", name="position")
    m.inputs += [token, position]
    first = np.zeros((LENGTH, count), np.int8)
    cache = m.variable(name, first, scale)
    older = m.read(cache, first.shape, scale)
    options = ("GatherOptions", {"Axis": 0, "BatchDims": 0})
    rows = m.node("GATHER", (table, token), (tokens, count), options)
    bias = np.array([-9000] + [0] * (count - 1), np.int32)  # so that texts are long
    rows = m.fully_connected(rows, weights, bias, scale=scale)
    rows = m.relu(rows, scale=scale) if has_relu else rows
    start = m.node(
        "CONCATENATION", (position, m.constant(np.zeros(1, np.int32))), (2,), _JOINED, dtype="int32"
    )
    newer = m.node("DYNAMIC_UPDATE_SLICE", (older, rows, start), first.shape)
    m.output(m.add(m.mean(newer, (0,)), rows, scale=scale))
    m.assign(cache, newer)
    model = tflite_schema.read_model(m.to_bytes())
    tflite_schema.add_metadata(model, VOCABULARY, WORDS.to_json())
    path.write_bytes(tflite_schema.model_bytes(model))
    return path


_JOINED = ("ConcatenationOptions", {"Axis": 0, "FusedActivationFunction": 0})
