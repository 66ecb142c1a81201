"""ONE_HOT along every axis of every type, byte for byte with the reference."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import check, check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

SHAPES = ((), (6,), (3, 5), (2, 1, 4))
TYPES = ("int8", "uint8", "int32", "int64", "bool")
DEPTH = np.int32(4)


def values(dtype: str) -> tuple[int, int]:
    """Two values that need all the bits of their type."""
    limits = {"bool": (1, 0)}
    return limits.get(dtype) or (np.iinfo(dtype).max, np.iinfo(dtype).min)


def one_hot(
    m: ModelWriter,
    indices: int,
    dtype: str,
    axis: int,
    *,
    depth: Any = DEPTH,
    on: int | None = None,
    result: str | None = None,
) -> int:
    first, second = values(dtype)
    on = m.constant(np.array(first, dtype)) if on is None else on
    off = m.constant(np.array(second, dtype))
    depth = np.asarray(depth)
    shape = list(m.tensors[indices].shape)
    shape.insert(axis if axis >= 0 else len(shape), int(depth))
    scale = 0.5 if (result or dtype) in ("int8", "int16") else None
    inputs = [indices, m.constant(depth), on, off]
    options = ("OneHotOptions", {"Axis": axis})
    return m.node("ONE_HOT", inputs, shape, options, scale=scale, dtype=result or dtype)


def some_indices(m: ModelWriter, shape: tuple[int, ...] = (3,), dtype: str = "int32") -> int:
    m.inputs.append(m.tensor(shape, dtype))
    return m.inputs[-1]


@pytest.mark.tools
@pytest.mark.parametrize("indices", ["int32", "int64"])
def test_every_axis_and_type(indices: str, tmp_path: Path) -> None:
    """Each index is tried from below 0 to beyond the depth, and with bits above the lower 32."""
    rng = np.random.default_rng(1)
    m, inputs = ModelWriter(), []
    for shape in SHAPES:
        x = some_indices(m, shape, indices)
        drawn = rng.integers(-1, DEPTH + 1, shape, endpoint=True)
        if indices == "int64":
            drawn = drawn + rng.integers(-2, 2, shape, endpoint=True) * 2**32
        inputs.append(np.array(drawn, indices))
        for axis, dtype in product(range(-1, len(shape) + 1), TYPES):
            m.output(one_hot(m, x, dtype, axis))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [inputs], tmp_path) == len(TYPES) * sum(len(s) + 2 for s in SHAPES)


@pytest.mark.tools
def test_constant_indices_computed_values_and_int64_depth(tmp_path: Path) -> None:
    m = ModelWriter()
    known = m.constant(np.array([[2, 0, -1], [1, 3, 4]], np.int32))
    for dtype in ("int8", "int32"):
        on = m.tensor((1,), dtype, 0.1 if dtype == "int8" else None, 3)
        m.inputs.append(on)
        # The output's scale is 0.5: the reference copies the stored value all the same.
        m.output(one_hot(m, known, dtype, 1, on=on, depth=np.int64(DEPTH)))
        m.output(one_hot(m, some_indices(m), dtype, 0, on=on, depth=np.int32(1)))
    assert check(m, tmp_path) == 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dtype": "int16"}, "makes int16 of int16 and int16; only int8, uint8"),
        ({"result": "int32"}, "makes int32 of int8 and int8; only int8, uint8"),
        ({"depth": np.int8(3)}, "depth .* must be a constant of int32 or int64"),
    ],
)
def test_other_variants_are_refused(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(one_hot(m, some_indices(m), **({"dtype": "int8", "axis": -1} | changes)))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "bool"])
def test_other_indices_are_refused(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((3,)) if dtype == "int8" else some_indices(m, (3,), dtype)
    m.output(one_hot(m, x, "int32", 0))
    with pytest.raises(UnsupportedOperator, match=f"are {dtype}; only int32 and int64"):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize("axis", [-2, 2])
def test_an_axis_outside_of_the_output_is_refused(axis: int, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(one_hot(m, some_indices(m), "int8", axis))
    with pytest.raises(ModelError, match=f"its axis {axis} is neither -1 nor one of its output"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_a_value_of_several_elements_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    two = m.constant(np.array([1, 2], np.int32))
    m.output(one_hot(m, some_indices(m), "int32", 0, on=two))
    with pytest.raises(ModelError, match=r"has shape \(2,\), not one element"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_an_output_of_another_depth_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    y = one_hot(m, some_indices(m), "int32", 0)
    m.tensors[y].shape = (DEPTH + 1, 3)
    m.output(y)
    with pytest.raises(
        ModelError, match=r"computes the shape \(4, 3\), but the file says \(5, 3\)"
    ):
        load_model(m.save(tmp_path / "model.tflite"))
