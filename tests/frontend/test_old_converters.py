"""Habits of old converters: the axis of a bias, and uint8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples

pytestmark = pytest.mark.tools


def _conv(x_type: str = "int8", axis: int = 0, zero_point: int = 0, span: int = 100) -> ModelWriter:
    """A convolution whose weights reach ``span`` steps from their zero point."""
    rng = np.random.default_rng(1)
    offset = 128 if x_type == "uint8" else 0
    m = ModelWriter()
    x = m.tensor((1, 9, 9, 3), x_type, 0.05, offset + 3)
    m.inputs.append(x)
    steps = rng.integers(-100, 100, (4, 3, 3, 3))
    steps[0, 0, 0, 0] = span
    weights = m.constant((steps + zero_point).astype(x_type), 0.01, zero_point)
    bias = m.constant(rng.integers(-999, 999, 4).astype(np.int32), 0.0005, axis=axis)
    y = m.tensor((1, 9, 9, 4), x_type, 0.1, offset - 20)
    options = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": 1}
    dilations = {"DilationWFactor": 1, "DilationHFactor": 1}
    m.operator("CONV_2D", [x, weights, bias], [y], ("Conv2DOptions", options | dilations))
    m.output(y)
    return m


def _pooled(size: int) -> ModelWriter:
    m = _conv("uint8", zero_point=120)
    (y,) = m.outputs
    shape = (1, 9 // size, 9 // size, 4)
    window = {"Padding": 1, "StrideW": size, "StrideH": size}
    window |= {"FilterWidth": size, "FilterHeight": size}
    m.outputs[:] = [m.node("AVERAGE_POOL_2D", [y], shape, ("Pool2DOptions", window))]
    return m


def test_a_bias_has_one_axis(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = tmp_path / "old.tflite", tmp_path / "new.tflite"
    _conv(axis=3).save(old)
    _conv(axis=0).save(new)
    graph = load_model(old)
    assert "quantized_dimension 3 of tensors with one dimension is read as 0" in caplog.text
    assert graph.tensors[2].quantization == load_model(new).tensors[2].quantization
    samples = random_samples(graph, 1).inputs
    (one,), (other,) = (run_reference(path, samples).outputs[0] for path in (old, new))
    assert np.array_equal(one, other)


def test_a_uint8_model_becomes_int8(tmp_path: Path) -> None:
    path, made = tmp_path / "old.tflite", tmp_path / "new.tflite"
    _pooled(3).save(path)
    with pytest.raises(ModelError, match="utvm convert may make int8 of it"):
        load_model(path)
    found = utvm_deploy.convert(path, made)
    assert {t.dtype for t in found.graph.tensors} == {"int8", "int32"}
    sample = np.random.default_rng(5).integers(0, 256, (1, 9, 9, 3)).astype(np.uint8)
    (before,) = run_reference(path, [sample]).outputs[0]
    (after,) = run_reference(made, [(sample.astype(int) - 128).astype(np.int8)]).outputs[0]
    assert np.array_equal(before.astype(int) - 128, after)


def test_bytes_without_a_scale_stay_as_they_are(tmp_path: Path) -> None:
    m = _conv("uint8", zero_point=120)
    plain = m.tensor((1, 4), "uint8")
    m.inputs.append(plain)
    m.output(m.node("RESHAPE", [plain], (4, 1), ("ReshapeOptions", {"NewShape": [4, 1]})))
    path = tmp_path / "old.tflite"
    m.save(path)
    found = utvm_deploy.convert(path)
    dtypes = [found.graph.tensors[number].dtype for number in found.graph.outputs]
    assert dtypes == ["int8", "uint8"]


def test_uint8_that_rounds_differently(tmp_path: Path) -> None:
    path = tmp_path / "old.tflite"
    _pooled(2).save(path)
    with pytest.raises(ModelError, match=r"operator 1 \(AVERAGE_POOL_2D\).* differently on int8"):
        utvm_deploy.convert(path)


def test_weights_without_an_int8_form(tmp_path: Path) -> None:
    path = tmp_path / "old.tflite"
    _conv("uint8", zero_point=100, span=155).save(path)
    with pytest.raises(ModelError, match=r"weights 'tensor_1' reach \+155 steps"):
        utvm_deploy.convert(path)


def test_a_file_that_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "new.tflite"
    _conv().save(path)
    with pytest.raises(ModelError, match="file already, of which nothing is uint8"):
        utvm_deploy.convert(path)
