"""FLOOR_MOD of every type, byte for byte with the reference; and where that stops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import Compiled, call_of, check_model
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, scale_of, typed

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array

TYPES = ("int8", "int16", "int32", "int64")
OPTIONS = ("FloorModOptions", {})


def floor_mod(m: ModelWriter, x: int, y: int, dtype: str | None = None) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    return m.node("FLOOR_MOD", [x, y], shape, OPTIONS, dtype=dtype)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: int) -> Array:
    """Random values of the whole range, of its ends, or near 0."""
    limits = np.iinfo(dtype)
    if kind == 1:
        ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
        return np.asarray(rng.choice(np.array(ends, dtype), shape))
    low, high = (limits.min, limits.max) if kind == 0 else (-9, 9)
    return np.asarray(rng.integers(low, high, shape, dtype=dtype, endpoint=True))


def divisors(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: int) -> Array:
    """Values that are not 0, nor -1 where the reference would overflow."""
    values = drawn(rng, shape, dtype, kind)
    values = np.where(values == 0, np.array(3, dtype), values)
    if dtype in ("int32", "int64"):
        values = np.where(values == -1, np.array(-2, dtype), values)
    return np.asarray(values, dtype)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_broadcasts(dtype: str, tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(7)
    for left, right in SHAPES:
        x, y = typed(m, left, dtype), typed(m, right, dtype)
        known = m.constant(divisors(rng, right, dtype, 2), scale_of(dtype))
        divided = m.constant(drawn(rng, left, dtype, 0), scale_of(dtype))
        m.output(floor_mod(m, x, y), floor_mod(m, y, y))
        m.output(floor_mod(m, x, known), floor_mod(m, divided, y))
        # A table of int8, by either side.
        for value in (7, -3):
            one = m.constant(np.array([value], dtype), scale_of(dtype))
            m.output(floor_mod(m, x, one), floor_mod(m, one, y))
    shapes = [m.tensors[i].shape for i in m.inputs]
    samples = [
        [
            (divisors if i % 2 else drawn)(rng, shape, dtype, kind % 3)
            for i, shape in enumerate(shapes)
        ]
        for kind in (0, 1, 2, 0)
    ]
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, samples, tmp_path) == 8 * len(SHAPES)


@pytest.mark.tools
def test_no_quantization_counts(tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(3)
    x, y = typed(m, (3, 50), "int8", 3), typed(m, (3, 50), "int8", -7)
    m.tensors[y].scales = (0.7,)
    unscaled = m.tensor((3, 50), "int8")
    m.operator("FLOOR_MOD", [x, y], [unscaled], OPTIONS)
    m.output(m.node("FLOOR_MOD", [unscaled, y], (3, 50), OPTIONS, scale=0.01, zero_point=9))
    sample = [drawn(rng, (3, 50), "int8", 0), divisors(rng, (3, 50), "int8", 0)]
    assert check_model(m.save(tmp_path / "model.tflite"), [sample], tmp_path) == 2


@pytest.mark.tools
@pytest.mark.parametrize("dtype", TYPES)
def test_what_stops_the_reference_makes_zero(dtype: str, tmp_path: Path) -> None:
    """A computed divisor of 0, and the least value by -1."""
    m, limits = ModelWriter(), np.iinfo(dtype)
    x, y = typed(m, (6,), dtype), typed(m, (6,), dtype)
    one = m.constant(np.array([5], dtype), scale_of(dtype))
    m.output(floor_mod(m, x, y), floor_mod(m, x, x), floor_mod(m, one, y))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    compiled = Compiled()
    compiled.build(
        [call_of(graph, op, "generic").kernel for op in graph.operators], tmp_path, "generic"
    )
    values: dict[int, Array] = {
        graph.inputs[0]: np.array([0, 7, limits.min, limits.min, limits.max, -7], dtype),
        graph.inputs[1]: np.array([0, 0, 0, -1, -1, 4], dtype),
    }
    made = [compiled.run(graph, operator, values).tolist() for operator in graph.operators]
    assert made == [[0, 0, 0, 0, 0, 1], [0] * 6, [0, 0, 0, 0, 0, 1]]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_constant_divisor_of_zero_is_refused(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    divisor = m.constant(np.array([1, 0], dtype), scale_of(dtype))
    m.output(floor_mod(m, typed(m, (2,), dtype), divisor))
    with pytest.raises(UnsupportedOperator, match=r"constant divisor '.*' has a 0"):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("uint8", "uint8", "uint8"),
        ("bool", "bool", "bool"),
        ("int8", "int16", "int8"),
        ("int8", "int8", "int16"),
    ],
)
def test_other_types_are_refused(left: str, right: str, result: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(floor_mod(m, typed(m, (2, 3), left), typed(m, (2, 3), right), result))
    with pytest.raises(UnsupportedOperator, match=f"it makes {result} of {left} and {right}; only"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_shapes_that_do_not_broadcast_are_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    sides = [typed(m, (2, 3), "int32"), typed(m, (3, 2), "int32")]
    m.output(m.node("FLOOR_MOD", sides, (2, 3), OPTIONS))
    with pytest.raises(ModelError, match="cannot be broadcast together"):
        load_model(m.save(tmp_path / "model.tflite"))
