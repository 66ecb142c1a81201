"""``quantize`` with the scheme int4: of all formats, and what becomes of it on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.quality.quantizing.facts import LEAST_SQNR_DB
from utvm_deploy.results.verifying.on_board import verify

pytestmark = pytest.mark.tools
MODELS = data_dir("models")


def weights_types(path: Path) -> list[str]:
    graph = load_model(path)
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    weighted = [one for one in graph.operators if one.kind in kinds]
    return [graph.tensors[one.inputs[1] or 0].dtype for one in weighted]


def accuracy(path: Path, inputs: np.ndarray, labels: np.ndarray) -> float:
    """By LiteRT's reference kernels."""
    graph = load_model(path)
    source = graph.tensors[graph.inputs[0]]
    assert source.quantization is not None
    steps = np.rint(inputs / source.quantization.scale) + source.quantization.zero_point
    taken = np.clip(steps, -128, 127).astype(np.int8)
    run = run_reference(path, [[one.reshape(source.shape)] for one in taken])
    found = np.array([outputs[0].argmax() for outputs in run.outputs])
    return float((found == labels).mean())


def test_digits(tmp_path: Path) -> None:
    path = tmp_path / "digits.tflite"
    made = utvm_deploy.quantize(
        MODELS / "digits_float.tflite", MODELS / "digits_calib.npz", scheme="int4"
    )
    made.save(path)
    assert made.to_dict()["scheme"] == "int4"
    assert made.headline.startswith("int4: ")
    (output,) = made.outputs
    assert output.sqnr_db is not None and output.sqnr_db > LEAST_SQNR_DB["int4"]
    assert set(weights_types(path)) == {"int4"}
    with np.load(MODELS / "digits_labelled.npz") as labelled:
        inputs, labels = labelled["inputs"], labelled["labels"]
    right = accuracy(path, inputs, labels)
    assert right > accuracy(MODELS / "digits_int8.tflite", inputs, labels) - 0.02
    compiled = utvm_deploy.compile(path, "host")
    with utvm_deploy.connect("host") as device:
        assert verify(device.load(compiled), path, random_samples(load_model(path), 2)).ok


def test_a_module_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="install it: pip install 'utvm-deploy[torch]'")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    made = utvm_deploy.quantize(net, torch.rand(80, 16), scheme="int4")
    made.save(tmp_path / "net.tflite")
    assert weights_types(tmp_path / "net.tflite") == ["int4", "int4"]


def test_onnx_files_become_tflite_files(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="install it: pip install 'utvm-deploy[onnx]'")
    rng = np.random.default_rng(1)
    weights = onnx.numpy_helper.from_array(rng.normal(size=(8, 5)).astype(np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5])
    graph = onnx.helper.make_graph([node], "net", [x], [y], [weights])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), tmp_path / "net.onnx")
    data = rng.normal(size=(80, 1, 8)).astype(np.float32)
    made = utvm_deploy.quantize(tmp_path / "net.onnx", data, scheme="int4")
    made.save(tmp_path / "net.tflite")
    assert weights_types(tmp_path / "net.tflite") == ["int4"]


def test_channels_that_are_almost_zero_keep_their_biases(tmp_path: Path) -> None:
    w, rng = FloatWriter(), np.random.default_rng(1)
    weights = rng.normal(size=(6, 16)).astype(np.float32)
    weights[:4] *= np.array([[1e-9], [1e-30], [0], [1e-5]], np.float32)
    biases = np.array([3, -2, 1.5, 2.5, 0.1, 0.2], np.float32)
    w.output(w.fully_connected(w.input((1, 16)), weights, biases))
    path = tmp_path / "net.tflite"
    path.write_bytes(w.to_bytes())
    utvm_deploy.quantize(path, rng.normal(size=(80, 1, 16)), scheme="int4").save(path)
    tensors = load_model(path).tensors
    (bias,) = (one for one in tensors if one.dtype == "int32")
    assert bias.data is not None and bias.quantization is not None
    made = bias.data * np.array(bias.quantization.scales)
    np.testing.assert_allclose(made[:4], biases[:4], rtol=1e-3)
