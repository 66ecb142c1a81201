"""RIGHT_SHIFT of every type, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, scale_of, typed

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

TYPES = ("int8", "uint8", "int16", "int32")


def shifted(m: ModelWriter, x: int, y: int, dtype: str | None = None) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    return m.node("RIGHT_SHIFT", [x, y], shape, ("RightShiftOptions", {}), dtype=dtype)


def shifts(dtype: str) -> np.ndarray:
    """Every shift that fits, and some that are negative or too large."""
    limits = np.iinfo(dtype)
    wanted = (limits.min, -33, -1, *range(limits.bits + 2), 31, 32, 33, 64, 100, limits.max)
    return np.array([s for s in wanted if limits.min <= s <= limits.max], dtype)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_broadcasts(dtype: str, tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(7)
    limits = np.iinfo(dtype)
    for left, right in SHAPES:
        x, y = typed(m, left, dtype), typed(m, right, dtype)
        m.output(shifted(m, x, y), shifted(m, x, x))
        drawn = rng.integers(limits.min, limits.max, right, dtype=dtype, endpoint=True)
        known = m.constant(np.array(drawn), scale_of(dtype))
        m.output(shifted(m, x, known), shifted(m, known, x))
        few = np.array(rng.integers(0, limits.bits, right)).astype(dtype)
        m.output(shifted(m, x, m.constant(few, scale_of(dtype))))
    assert check(m, tmp_path) == 5 * len(SHAPES)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", TYPES)
def test_every_shift_of_many_values(dtype: str, tmp_path: Path) -> None:
    m, rng, by = ModelWriter(), np.random.default_rng(3), shifts(dtype)
    limits = np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, (64, 1), dtype=dtype, endpoint=True)
    ends = np.array([[limits.min], [limits.max], [0], [1]], dtype)
    values = np.concatenate([drawn, ends])
    x, y = typed(m, values.shape, dtype), typed(m, by.shape, dtype)
    m.output(shifted(m, x, y), shifted(m, x, m.constant(by, scale_of(dtype))))
    m.output(shifted(m, m.constant(values, scale_of(dtype)), y))
    # Of int8, these are tables.
    for count in by[:: max(1, by.size // 12)]:
        m.output(shifted(m, x, m.constant(np.array(count), scale_of(dtype))))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[values, by]], tmp_path) > 10


@pytest.mark.tools
def test_no_quantization_counts(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = typed(m, (3, 5), "int8", 3), typed(m, (3, 5), "int8", -7)
    m.tensors[y].scales = (0.7,)
    unscaled = m.tensor((3, 5), "int8")
    m.operator("RIGHT_SHIFT", [x, y], [unscaled], ("RightShiftOptions", {}))
    one = m.constant(np.array([1], np.int8))
    m.output(m.node("RIGHT_SHIFT", [unscaled, one], (3, 5), scale=0.01, zero_point=9))
    assert check(m, tmp_path) == 2


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int64", "int64", "int64"),
        ("bool", "bool", "bool"),
        ("int8", "int16", "int8"),
        ("int32", "int8", "int32"),
        ("uint8", "int8", "uint8"),
        ("int8", "int8", "int16"),
    ],
)
def test_other_types_are_refused(left: str, right: str, result: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(shifted(m, typed(m, (2, 3), left), typed(m, (2, 3), right), result))
    with pytest.raises(UnsupportedOperator, match=f"it makes {result} of {left} and {right}; only"):
        load_model(m.save(tmp_path / "shift.tflite"))


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_types_that_a_graph_does_not_have_are_refused(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(shifted(m, typed(m, (2, 3), dtype), typed(m, (2, 3), dtype)))
    with pytest.raises(UnsupportedOperator, match=dtype):
        load_model(m.save(tmp_path / "shift.tflite"))


def test_shapes_that_do_not_broadcast_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    sides = [typed(m, (2, 3), "int32"), typed(m, (3, 2), "int32")]
    m.output(m.node("RIGHT_SHIFT", sides, (2, 3)))
    with pytest.raises(ModelError, match="cannot be broadcast together"):
        load_model(m.save(tmp_path / "shift.tflite"))
