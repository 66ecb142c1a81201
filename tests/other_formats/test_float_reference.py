"""utvm_deploy.evaluate with a float model of ONNX as the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from onnx_writer import OnnxWriter

import utvm_deploy

pytestmark = pytest.mark.tools

RNG = np.random.default_rng(5)


def test_symbolic_shapes_are_given_for_the_model_alone(tmp_path: Path) -> None:
    onnx = OnnxWriter((1, "length"))
    path = onnx.quantized(tmp_path, onnx.add("Relu", "x"))
    m = FloatWriter()
    m.output(m.relu(m.input((1, 5))))
    inputs = RNG.normal(0, 1, (4, 5))
    found = utvm_deploy.evaluate(
        path,
        {"inputs": inputs, "targets": np.maximum(inputs, 0)},
        reference=m.save(tmp_path / "float.tflite"),
        inputs={"x": (1, 5)},
        task="regression",
    )
    assert found.of("float").metrics["mae"] < 1e-6
    assert found.metrics["mae"] < 0.5 and found.metrics["sqnr_db"] > 10


def test_an_int8_model_next_to_its_float_one(tmp_path: Path) -> None:
    onnx = OnnxWriter((1, 4))
    weights = RNG.integers(-100, 100, (3, 4)).astype(np.float32) / 100
    logits = onnx.add("Gemm", "x", onnx.constant(weights), transB=1)
    quantized = onnx.quantized(tmp_path, logits)
    inputs = RNG.normal(0, 0.5, (30, 4))
    data = {"inputs": inputs, "labels": (inputs @ weights.T).argmax(axis=1)}
    found = utvm_deploy.evaluate(quantized, data, reference=tmp_path / "float.onnx")
    floats, reference = found.judged
    assert floats.run.runtime.startswith("onnxruntime")
    assert reference.run.runtime.startswith("LiteRT")
    assert floats.metrics["accuracy"] == 1
    assert found.metrics["agreement"] == found.metrics["accuracy"] > 0.8
    assert 20 < found.metrics["sqnr_db"] < 80
