"""ONNX files of float16, as onnxconverter-common's code in onnxruntime writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import utvm_deploy
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.conversion import CONVERTERS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.quantizing.onnx.file import checked_model

RNG = np.random.default_rng(16)
NOTE = "float16 and bfloat16 tensors are computed as float32"


def _constant(name: str, *shape: int) -> Any:
    values = (RNG.standard_normal(shape) * 0.3).astype(np.float16).astype(np.float32)
    return numpy_helper.from_array(values, name)


def _network() -> Any:
    """A small network whose weights are float16 exactly; Resize stays float32 behind casts."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Resize", ["r", "", "scales"], ["u"], mode="nearest"),
        helper.make_node("Constant", [], ["half"], value=_constant("half", 1)),
        helper.make_node("Mul", ["u", "half"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    constants = [_constant("w1", 4, 3, 3, 3), _constant("b1", 4), scales]
    constants += [_constant("w2", 5, 4), _constant("b2", 5)]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5]),
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(params=[True, False], ids=["float32 ends", "float16 ends"])
def halves(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """The network in float32, and in float16."""
    whole, half = tmp_path / "whole.onnx", tmp_path / "half.onnx"
    model = _network()
    onnx.save(model, whole)
    onnx.save(convert_float_to_float16(model, keep_io_types=request.param), half)
    types = {tensor.data_type for tensor in onnx.load(half).graph.initializer}
    assert TensorProto.FLOAT16 in types
    return whole, half


@pytest.mark.tools
def test_float16_is_computed_as_float32(
    halves: tuple[Path, Path], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    with utvm_deploy.connect("host") as device:
        whole, half = (
            device.load(utvm_deploy.compile(path, "host"), into="ram")(x) for path in halves
        )
    assert np.array_equal(whole, half) and half.dtype == np.float32
    assert NOTE in caplog.text
    first, second = (load_model(path) for path in halves)
    assert [one.kind for one in first.operators] == [one.kind for one in second.operators]
    assert main(["verify", str(halves[1]), "--board", "host", "--samples", "2"]) == 0
    told = capsys.readouterr().out
    assert "compared with onnxruntime" in told and ": 0 of 10" in told
    chosen = ["--format", "float16_arithmetic", "--samples", "2"]
    assert main(["verify", str(halves[1]), "--board", "host", *chosen]) == 0
    assert "equal to NumPy's form of float16_arithmetic" in capsys.readouterr().out


@pytest.mark.tools
def test_float16_is_quantized_as_float32(
    halves: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.npy"
    np.save(data, RNG.standard_normal((20, 3, 8, 8)).astype(np.float32))
    made = [tmp_path / f"{path.stem}.tflite" for path in halves]
    for path, one in zip(halves, made, strict=True):
        assert main(["quantize", str(path), "--data", str(data), "-o", str(one)]) == 0
    told = capsys.readouterr()
    assert NOTE in told.out + told.err
    assert "the batch of input 'x' is bound to 1" in told.out + told.err
    graphs = [load_model(one) for one in made]
    assert all(any(one.kind == "CONV_2D" for one in graph.operators) for graph in graphs)
    weights = [[t.data for t in graph.tensors if t.data is not None] for graph in graphs]
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))


def _bfloat16(model: Any) -> None:
    """Make bfloat16 of a model of float32, in place: its weights lose their lower halves."""
    for tensor in (*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute)):
        if tensor.data_type == TensorProto.FLOAT and tensor.name != "scales":
            upper = (numpy_helper.to_array(tensor).view(np.uint32) >> 16).astype(np.uint16)
            made = helper.make_tensor(
                tensor.name, TensorProto.BFLOAT16, tensor.dims, upper.tobytes(), raw=True
            )
            tensor.CopyFrom(made)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.BFLOAT16


@pytest.mark.tools
def test_bfloat16_is_computed_as_float32(tmp_path: Path) -> None:
    model, path = _network(), tmp_path / "b.onnx"
    weights = numpy_helper.to_array(model.graph.initializer[0])
    _bfloat16(model)
    onnx.save(model, path)
    graph = load_model(path)
    assert {graph.tensors[n].dtype for n in (*graph.inputs, *graph.outputs)} == {"float32"}
    (convolution,) = (one for one in graph.operators if one.kind == "CONV_2D")
    found = graph.tensors[convolution.inputs[1] or 0].data
    upper = (weights.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert found is not None and np.array_equal(found, upper.transpose(0, 2, 3, 1))
    assert checked_model(path.read_bytes()).graph.input[0].type.tensor_type.elem_type == 1
    assert CONVERTERS[".onnx"].convert(path)


@pytest.mark.tools
def test_other_types_stay(tmp_path: Path) -> None:
    """Casts of integers, and the types that attributes name."""
    nodes = [
        helper.make_node("Cast", ["i"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = [
        helper.make_tensor_value_info("i", TensorProto.INT32, [1, 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]),
    ]
    w = numpy_helper.from_array(np.arange(4, dtype=np.float16), "w")
    graph = helper.make_graph(nodes, "casts", ends[:1], ends[1:], [w])
    path = tmp_path / "casts.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    graph = load_model(path)
    assert [graph.tensors[n].dtype for n in (*graph.inputs, *graph.outputs)] == ["int32", "float32"]
