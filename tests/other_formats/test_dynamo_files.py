"""Blocks of transformers that PyTorch's exporter wrote (``make_dynamo_files.py``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import utvm_deploy

pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder_23", "llama_18"])
def test_a_block_is_that_of_onnxruntime(name: str) -> None:
    path = Path(__file__).with_name(f"dynamo_{name}.onnx")
    found = utvm_deploy.verify(path, "host", samples=2)
    assert found.ok and found.origin is not None and not found.origin.different


@pytest.mark.tools
@pytest.mark.slow
def test_gelu_of_parts_is_quantized_in_front_of_rows(tmp_path: Path) -> None:
    path, target = Path(__file__).with_name("dynamo_encoder_18.onnx"), tmp_path / "int8.tflite"
    data = np.random.default_rng(0).normal(size=(40, 1, 6, 8)).astype(np.float32)
    made = utvm_deploy.quantize(path, data)
    assert made.float_operators == ()
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 25
    made.save(target)
    assert utvm_deploy.verify(target, "host", samples=2).ok
