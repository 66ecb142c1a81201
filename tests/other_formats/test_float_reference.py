"""utvm_deploy.evaluate with a float model of ONNX as the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_writer import OnnxWriter

import utvm_deploy

pytestmark = pytest.mark.tools

RNG = np.random.default_rng(5)


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
