"""A float front end and a quantized network behind it are one model, in one file of ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from host_model import HostModel
from onnx import TensorProto, helper, numpy_helper

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.cli.main import main

RNG = np.random.default_rng(17)


def keywords(path: Path) -> Path:
    """Logarithms of a mel spectrum in float32, and int8 convolutions of them."""
    constants = {
        "size": np.int64(64),
        "step": np.int64(20),
        "last": np.array([-1]),
        "mels": np.int64(6),
        "rate": np.int64(8000),
        "low": np.float32(100),
        "high": np.float32(3900),
        "least": np.float32(1e-3),
        "image": np.array([1, 1, 9, 6]),
        "s": np.float32(0.1),
        "z": np.int8(5),
        "weights": RNG.integers(-127, 127, (4, 1, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
    }
    made = helper.make_node
    nodes = [
        made("HannWindow", ["size"], ["window"]),
        made("STFT", ["x", "step", "window", "size"], ["numbers"], onesided=1),
        made("Mul", ["numbers", "numbers"], ["squares"]),
        made("ReduceSum", ["squares", "last"], ["power"], keepdims=0),
        made("MelWeightMatrix", ["mels", "size", "rate", "low", "high"], ["filters"]),
        made("MatMul", ["power", "filters"], ["mel"]),
        made("Add", ["mel", "least"], ["some"]),
        made("Log", ["some"], ["features"]),
        made("QuantizeLinear", ["features", "s", "z"], ["q"]),
        made("DequantizeLinear", ["q", "s", "z"], ["d"]),
        made("Reshape", ["d", "image"], ["picture"]),
        made("DequantizeLinear", ["weights", "ws", "wz"], ["w"]),
        made("Conv", ["picture", "w"], ["c"]),
        made("Relu", ["c"], ["r"]),
        made("QuantizeLinear", ["r", "s", "z"], ["rq"]),
        made("DequantizeLinear", ["rq", "s", "z"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 224)), ("y", (1, 4, 7, 4)))
    ]
    known = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "keywords", ends[:1], ends[1:], known)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.mark.emulator
@pytest.mark.tools
def test_one_model_on_a_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keywords(tmp_path / "keywords.onnx")
    argv = ["verify", str(path), "--board", "mps2_an500", "--samples", "1", "--json"]
    code = main(argv)
    out = capsys.readouterr()
    assert code == 0, out.err
    layers = json.loads(out.out)["layers"]
    kinds = [layer["operator"] for layer in layers]
    assert kinds[:2] == ["SignalSpectrogram", "FULLY_CONNECTED"] and "CONV_2D" in kinds
    bounds = {layer["operator"]: layer["bound"] for layer in layers}
    exact = {"ulps": 0, "relative": 0}
    assert bounds["SignalSpectrogram"] == bounds["CONV_2D"] == exact
    assert bounds["LOG"] == {"ulps": 2, "relative": 0}


@pytest.mark.tools
@pytest.mark.parametrize("version", [17, 20])
def test_a_transform_of_the_whole_signal(
    version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constants = {
        "axis": np.int64(-2),
        "least": np.float32(1e-3),
        "s": np.float32(0.1),
        "z": np.int8(5),
        "weights": RNG.integers(-127, 127, (33, 4)).astype(np.int8),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
    }
    made = helper.make_node
    inputs, place = (["x"], {"axis": 1}) if version < 20 else (["x", "", "axis"], {})
    nodes = [
        made("DFT", inputs, ["numbers"], onesided=1, **place),
        made("Mul", ["numbers", "numbers"], ["squares"]),
        made("ReduceSum", ["squares", "last"], ["power"], keepdims=0),
        made("Add", ["power", "least"], ["some"]),
        made("Log", ["some"], ["features"]),
        made("QuantizeLinear", ["features", "s", "z"], ["q"]),
        made("DequantizeLinear", ["q", "s", "z"], ["d"]),
        made("DequantizeLinear", ["weights", "ws", "wz"], ["w"]),
        made("MatMul", ["d", "w"], ["product"]),
        made("QuantizeLinear", ["product", "s", "z"], ["pq"]),
        made("DequantizeLinear", ["pq", "s", "z"], ["y"]),
    ]
    constants["last"] = np.array([-1])
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 64, 1)), ("y", (1, 4)))
    ]
    known = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "tones", ends[:1], ends[1:], known)
    opsets = [helper.make_opsetid("", version)]
    path = tmp_path / "tones.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    argv = ["verify", str(path), "--board", "host", "--samples", "2", "--json"]
    code = main(argv)
    out = capsys.readouterr()
    assert code == 0, out.err
    kinds = [layer["operator"] for layer in json.loads(out.out)["layers"]]
    assert "SignalSpectrogram" in kinds and "FULLY_CONNECTED" in kinds and "MUL" not in kinds


def powers(path: Path, shape: tuple[int, ...], version: int, **place: int) -> onnx.ModelProto:
    """The power spectrum of real samples, quantized; ``place`` is the DFT's axis or nothing."""
    made = helper.make_node
    nodes = [
        made("DFT", ["x"], ["numbers"], onesided=1, **place),
        made("Mul", ["numbers", "numbers"], ["squares"]),
        made("ReduceSum", ["squares", "last"], ["power"], keepdims=0),
        made("QuantizeLinear", ["power", "s", "z"], ["q"]),
        made("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = {"last": np.array([-1]), "s": np.float32(0.2), "z": np.int8(-128)}
    axis = place.get("axis", 1 if version < 20 else len(shape) - 2)
    extents = [*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 : -1]]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, one)
        for name, one in (("x", shape), ("y", extents))
    ]
    known = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "powers", ends[:1], ends[1:], known)
    opsets = [helper.make_opsetid("", version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, path)
    return model


@pytest.mark.tools
@pytest.mark.parametrize(
    ("shape", "version", "place"),
    [((2, 16, 1), 17, {}), ((1, 4, 16, 1), 17, {"axis": 2}), ((1, 4, 16, 1), 20, {})],
)
def test_the_axis_of_a_transform(
    shape: tuple[int, ...], version: int, place: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "powers.onnx"
    session = onnxruntime.InferenceSession(
        powers(path, shape, version, **place).SerializeToString()
    )
    x = RNG.normal(size=shape).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    (made,) = HostModel(utvm_deploy.compile(path, "host"), tmp_path).run([x])
    np.testing.assert_allclose(made, expected, atol=0.21)


@pytest.mark.tools
@pytest.mark.parametrize("shape", [(1, 16, 16, 1), (1, 4, 16, 1)])
def test_old_transforms_are_along_axis_1(shape: tuple[int, ...], tmp_path: Path) -> None:
    powers(tmp_path / "powers.onnx", shape, 17)
    with pytest.raises(UnsupportedOperator, match="along the axis before the last"):
        utvm_deploy.compile(tmp_path / "powers.onnx", "host")
