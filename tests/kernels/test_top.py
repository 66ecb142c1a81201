"""TOPK_V2 of every type: values and positions, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.passes.simplify import simplify

CASES = (((9,), 1), ((4, 7), 3), ((2, 3, 20), 20), ((1, 40), 39))
TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, 1e-45], np.float32)


def top(
    m: ModelWriter,
    x: int,
    count: int,
    *,
    positions: str = "int32",
    k: Array | None = None,
    scale: float = 0.1,
) -> tuple[int, int]:
    """TOPK_V2: its values and its positions."""
    like = m.tensors[x]
    shape = (*like.shape[:-1], count)
    values = m.tensor(shape, like.dtype, scale if like.scales else None)
    found = m.tensor(shape, positions)
    operands = [x, m.constant(np.array(count, np.int32) if k is None else k)]
    m.operator("TOPK_V2", operands, [values, found], ("TopKV2Options", {}))
    return values, found


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, sample: int) -> Array:
    """Few different values in the first sample: most elements are equal to others."""
    if dtype == "float32":
        odd = rng.choice(ODD, shape)
        return odd if sample else rng.normal(size=shape).astype(np.float32)
    limits = np.iinfo(dtype)
    if sample == 0:
        return rng.choice(np.array([limits.min, 0, limits.max], dtype), shape)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.tools
def test_every_type_and_count(tmp_path: Path) -> None:
    """Equal elements keep their order, and what is not a number comes last."""
    rng = np.random.default_rng(1610)
    m = ModelWriter()
    for dtype in TYPES:
        for shape, count in CASES:
            scaled = dtype in ("int8", "uint8", "int16")
            m.inputs.append(m.tensor(shape, dtype, 0.1 if scaled else None))
            m.output(*top(m, m.inputs[-1], count))
    specs = [m.tensors[i] for i in m.inputs]
    samples = [[drawn(rng, s.shape, s.dtype, sample) for s in specs] for sample in range(3)]
    # Each becomes one operator that finds the positions, and one that takes the values there.
    assert check_model(m.save(tmp_path / "top.tflite"), samples, tmp_path) == 2 * len(specs)


def test_values_that_nobody_reads_are_not_taken(tmp_path: Path) -> None:
    m = ModelWriter()
    _, positions = top(m, m.input((2, 5)), 3)
    m.output(positions)
    graph = simplify(load_model(m.save(tmp_path / "top.tflite")))
    assert [operator.kind for operator in graph.operators] == ["TOPK_V2"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"positions": "int16"}, "its positions 'tensor_2' are int16; only int32 is supported"),
        ({"scale": 0.2}, "its values 'tensor_1' differ from 'tensor_0' in type or quantization"),
    ],
)
def test_other_variants_are_refused(changes: dict[str, object], why: str, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(*top(m, m.input((2, 5)), 3, **changes))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "top.tflite"))


def test_a_count_of_another_type_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(*top(m, m.input((2, 5)), 3, k=np.array(3, np.int16)))
    with pytest.raises(ModelError, match=r"'tensor_3' is int16; LiteRT .* takes int32"):
        load_model(m.save(tmp_path / "top.tflite"))


@pytest.mark.parametrize("k", [0, 6, -1])
def test_a_count_that_no_row_has_is_refused(k: int, tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(*top(m, m.input((2, 5)), 3, k=np.array(k, np.int32)))
    with pytest.raises(ModelError, match=f"its k is {k}, but its rows have 5 elements"):
        load_model(m.save(tmp_path / "top.tflite"))
