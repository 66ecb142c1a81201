"""CAST from and to uint32, and int16 without a scale in operators that only move elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model

_OTHERS = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
_SCALED = ("int8", "uint8", "int16")


def cast(m: ModelWriter, x: int, dtype: str) -> int:
    made = m.tensor(m.tensors[x].shape, dtype, 0.1 if dtype in _SCALED else None)
    m.operator("CAST", [x], [made], ("CastOptions", {}))
    return made


@pytest.mark.tools
def test_unsigned_words(tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(7)
    x = m.tensor((64,), "uint32")
    m.inputs.append(x)
    m.output(*(cast(m, x, dtype) for dtype in _OTHERS))
    words = rng.integers(0, 2**32, 64, np.uint32)
    words[:4] = [0, 1, 2**31, 2**32 - 1]
    values: list[np.ndarray] = [words]
    for dtype in _OTHERS:
        m.inputs.append(m.tensor((64,), dtype, 0.1 if dtype in _SCALED else None))
        m.output(cast(m, m.inputs[-1], "uint32"))
        if dtype == "float32":
            made = np.exp2(rng.uniform(-3, 32, 64)).astype(np.float32)
            made[:3] = [0, 2.0**32, 1e20]
            values.append(made)
        else:
            limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            values.append(rng.integers(*limits, 64, endpoint=True).astype(dtype))
    assert check_model(m.save(tmp_path / "model.tflite"), [values], tmp_path) == 2 * len(_OTHERS)


@pytest.mark.tools
def test_samples_without_a_scale_move(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.tensor((2, 6), "int16")
    m.inputs.append(x)
    numbers = [m.constant(np.array(one, np.int32)) for one in ((3, 4), (1, 0), (0, 1), (2, 3))]
    m.output(m.node("RESHAPE", [x, numbers[0]], (3, 4)))
    m.output(m.node("TRANSPOSE", [x, numbers[1]], (6, 2)))
    m.output(m.node("SLICE", [x, numbers[2], numbers[3]], (2, 3)))
    m.output(m.node("CONCATENATION", [x, x], (2, 12), ("ConcatenationOptions", {"Axis": 1})))
    samples = [[np.arange(-6, 6, dtype=np.int16).reshape(2, 6)]]
    assert check_model(m.save(tmp_path / "model.tflite"), samples, tmp_path) == 4


def test_padding_needs_a_scale(tmp_path: Path) -> None:
    m = ModelWriter()
    m.inputs.append(m.tensor((2, 6), "int16"))
    paddings = m.constant(np.array([[0, 1], [0, 0]], np.int32))
    m.output(m.node("PAD", [m.inputs[0], paddings], (3, 6)))
    with pytest.raises(ModelError, match="has no scale and zero point"):
        load_model(m.save(tmp_path / "model.tflite"))
