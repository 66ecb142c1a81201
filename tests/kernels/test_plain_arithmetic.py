"""ADD, SUB and MUL of int32 and int64, which Keras and other tools write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, typed

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

KINDS = ("ADD", "SUB", "MUL")
FUSED = {kind: f"{kind.capitalize()}Options" for kind in KINDS}


def _node(m: ModelWriter, kind: str, x: int, y: int, activation: int = 0) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    options = (FUSED[kind], {"FusedActivationFunction": activation})
    return m.node(kind, [x, y], shape, options, dtype=m.tensors[x].dtype)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", KINDS)
def test_plain_integers_broadcast_and_wrap(kind: str, dtype: str, tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(3)
    limits = np.iinfo(dtype)
    shapes = [pair for pair in SHAPES if max(map(len, pair)) <= 4]
    for left, right in shapes:
        x, y = typed(m, left, dtype), typed(m, right, dtype)
        drawn = rng.integers(limits.min, limits.max, right, dtype=dtype, endpoint=True)
        known = m.constant(np.array(drawn))
        m.output(_node(m, kind, x, y), _node(m, kind, x, known), _node(m, kind, known, x))
    assert check(m, tmp_path) == 3 * len(shapes)


@pytest.mark.tools
def test_positions_of_an_embedding(tmp_path: Path) -> None:
    """A table whose second half belongs to the second feature, as Keras writes offsets."""
    m = ModelWriter()
    table = m.constant(np.arange(-24, 24, dtype=np.int8).reshape(8, 6), 0.1)
    x = typed(m, (1, 4), "int32")
    moved = _node(m, "ADD", x, m.constant(np.array([[0, 2, 4, 1]], np.int32)))
    m.output(m.node("GATHER", [table, moved], (1, 4, 6), ("GatherOptions", {"Axis": 0})))
    path = m.save(tmp_path / "model.tflite")
    inputs = [[np.array([[0, 1, 3, 2]], np.int32)], [np.array([[7, 5, 0, 6]], np.int32)]]
    assert check_model(path, inputs, tmp_path) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_activation_of_plain_integers_is_refused(kind: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(_node(m, kind, typed(m, (2,), "int32"), typed(m, (2,), "int32"), activation=1))
    with pytest.raises(UnsupportedOperator, match="a fused activation on int32; only NONE"):
        load_model(m.save(tmp_path / "model.tflite"))
