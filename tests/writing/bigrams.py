"""A language model of two tables: scores by the token and its position, and earlier ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tflite_writer import ModelWriter

from utvm_deploy.frontend.files import tflite_schema
from utvm_deploy.frontend.vocabulary import VOCABULARY, Vocabulary

LENGTH = 12
PIECES = ("\n", "a", "b", "c", " ", "ab", "bca", "é")
WORDS = Vocabulary(PIECES, 0, LENGTH)


def bigrams(
    path: Path, *, vocabulary: str | None = WORDS.to_json(), score_scale: float = 0.1
) -> Path:
    """Save the model, with this vocabulary in its file."""
    rng = np.random.default_rng(20263)
    m, count = ModelWriter(), len(PIECES)
    parts = []
    for name, rows in (("token", count), ("position", LENGTH)):
        index = m.tensor((1,), "int32", name=name)
        m.inputs.append(index)
        scores = rng.integers(-90, 91, (rows, count), np.int8)
        scores[:, 0] -= 37  # so that texts are long
        table = m.constant(scores, score_scale)
        options = ("GatherOptions", {"Axis": 0, "BatchDims": 0})
        parts.append(m.node("GATHER", (table, index), (1, count), options))
    # The state: the scores of the token before.
    first = np.zeros((1, count), np.int8)
    last = m.variable("last", first, score_scale)
    older = m.read(last, first.shape, score_scale)
    both = m.add(*parts, scale=2 * score_scale)
    m.output(m.add(both, older, scale=2 * score_scale, zero_point=3))
    m.assign(last, parts[0])
    data = m.to_bytes()
    if vocabulary is not None:
        model = tflite_schema.read_model(data)
        tflite_schema.add_metadata(model, VOCABULARY, vocabulary)
        data = tflite_schema.model_bytes(model)
    path.write_bytes(data)
    return path
