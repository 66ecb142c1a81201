"""Arithmetic on int32 and int64 as they are, which Keras and other tools write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, typed

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

KINDS = ("ADD", "SUB", "MUL")
FUSED = {kind: f"{kind.capitalize()}Options" for kind in KINDS}
OTHERS = {
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), ("MaximumMinimumOptions", {})),
    "SQUARED_DIFFERENCE": ("SquaredDifferenceOptions", {}),
}
#: Operators that the reference has for int32, but not for int64.
OF_INT32 = ("ABS", "SIGN", "SQUARED_DIFFERENCE")
FUNCTIONS = {kind: (f"{kind.capitalize()}Options", {}) for kind in ("ABS", "NEG", "SIGN")}


def _node(m: ModelWriter, kind: str, x: int, y: int, activation: int = 0) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    options = OTHERS.get(kind) or (FUSED[kind], {"FusedActivationFunction": activation})
    return m.node(kind, [x, y], shape, options, dtype=m.tensors[x].dtype)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", (*KINDS, *OTHERS))
def test_plain_integers_broadcast_and_wrap(kind: str, dtype: str, tmp_path: Path) -> None:
    if kind in OF_INT32 and dtype == "int64":
        pytest.skip("the reference has no such operator of int64")
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
def test_functions_and_sums_of_plain_integers(tmp_path: Path) -> None:
    m = ModelWriter()
    for shape in ((33,), (2, 3, 5)):
        x, y = typed(m, shape, "int32"), typed(m, shape, "int32")
        for kind, options in FUNCTIONS.items():
            m.output(m.node(kind, [x], shape, options))
        for inputs in ([x, y], [x, y, x, m.constant(np.full(shape, 1 << 30, np.int32))]):
            m.output(m.node("ADD_N", inputs, shape, ("AddNOptions", {})))
    m.output(m.node("NEG", [typed(m, (9,), "int64")], (9,), FUNCTIONS["NEG"]))
    assert check(m, tmp_path) == 11


@pytest.mark.parametrize("kind", OF_INT32)
def test_what_the_reference_has_of_int32_alone_is_refused_of_int64(
    kind: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x = typed(m, (2,), "int64")
    m.output(_node(m, kind, x, x) if kind in OTHERS else m.node(kind, [x], (2,), FUNCTIONS[kind]))
    with pytest.raises(UnsupportedOperator, match="only int32"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_tensors_of_two_shapes_are_not_added(tmp_path: Path) -> None:
    m = ModelWriter()
    inputs = [typed(m, (2,), "int32"), typed(m, (1,), "int32")]
    m.output(m.node("ADD_N", inputs, (2,), ("AddNOptions", {})))
    with pytest.raises(ModelError, match=r"has shape \(2,\), but 'tensor_1' has \(1,\)"):
        load_model(m.save(tmp_path / "model.tflite"))


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
