"""ONNX files whose weights have four bits (opset 21), and constants without zero points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import utvm_deploy
from utvm_deploy.base.errors import ModelError

pytestmark = pytest.mark.tools
RNG = np.random.default_rng(21)
X, Y = (np.float32(0.05), np.int8(3)), (np.float32(0.1), np.int8(-4))


def written(
    path: Path,
    kind: str,
    dtype: int,
    *,
    scales: int = 8,
    zero: int | None = None,
    **dequantized: Any,
) -> Path:
    """A Conv or a Gemm in QDQ form; its weights are 8 times 3x3x3, or 8 times 6."""
    shape = (8, 3, 3, 3) if kind == "Conv" else (8, 6)
    low = 0 if dtype == TensorProto.UINT4 else -8
    values = RNG.integers(low, low + 16, shape)
    constants = {"xs": X[0], "xz": X[1], "ys": Y[0], "yz": Y[1]}
    weights_scales = RNG.uniform(0.01, 0.05, scales).astype(np.float32)
    constants["ws"] = weights_scales if scales > 1 else weights_scales[0]
    constants["b"] = RNG.normal(size=8).astype(np.float32)
    stored = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    stored.append(helper.make_tensor("w", dtype, shape, values.reshape(-1).tolist()))
    inputs = ["w", "ws"]
    if zero is not None:
        stored.append(helper.make_tensor("wz", dtype, (scales,), [zero] * scales))
        inputs.append("wz")
    if scales > 1:
        dequantized = {"axis": 0, **dequantized}
    options = {"pads": [1, 1, 1, 1]} if kind == "Conv" else {"transB": 1}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", inputs, ["wd"], **dequantized),
        helper.make_node(kind, ["xd", "wd", "b"], ["made"], **options),
        helper.make_node("QuantizeLinear", ["made", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    ends = ([1, 3, 6, 6], [1, 8, 6, 6]) if kind == "Conv" else ([1, 6], [1, 8])
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in zip("xy", ends, strict=True)
    )
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def check(path: Path, dtype: str) -> None:
    """The type of the weights, and results within a step of onnxruntime's."""
    operators = utvm_deploy.inspect(path).to_dict()["operators"]
    (weights,) = (
        one["inputs"][1]["dtype"]
        for one in operators
        if one["kind"] in ("CONV_2D", "FULLY_CONNECTED")
    )
    assert weights == dtype
    compiled = utvm_deploy.compile(path, "host")
    x = RNG.normal(0, 2, compiled.inputs[0].shape).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    assert np.unique(wanted).size > 4
    with utvm_deploy.connect("host") as device:
        made = np.asarray(device.load(compiled)(x)).reshape(wanted.shape)
    np.testing.assert_allclose(made, wanted, atol=float(Y[0]) * 1.01)


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize("scales", [1, 8])
def test_weights_stay_int4(kind: str, scales: int, tmp_path: Path) -> None:
    check(written(tmp_path / "net.onnx", kind, TensorProto.INT4, scales=scales), "int4")


def test_asymmetric_weights_become_int8(tmp_path: Path) -> None:
    check(written(tmp_path / "net.onnx", "Gemm", TensorProto.UINT4, zero=2), "int8")


def test_symmetric_unsigned_weights_stay_int4(tmp_path: Path) -> None:
    check(written(tmp_path / "net.onnx", "Gemm", TensorProto.UINT4, zero=8), "int4")


def test_int8_weights_need_no_zero_points(tmp_path: Path) -> None:
    check(written(tmp_path / "net.onnx", "Gemm", TensorProto.INT8), "int8")


def test_scales_of_blocks_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "net.onnx", "Gemm", TensorProto.INT4, axis=1, block_size=3)
    model = onnx.load(path)
    (scales,) = (one for one in model.graph.initializer if one.name == "ws")
    blocks = RNG.uniform(0.01, 0.05, (8, 2)).astype(np.float32)
    scales.CopyFrom(numpy_helper.from_array(blocks, "ws"))
    onnx.save(model, path)
    with pytest.raises(ModelError, match="scales of blocks of 3"):
        utvm_deploy.compile(path, "host")


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(("scales", "size"), [((), 0), ((8,), 0), ((2, 8), 16)])
def test_weights_alone_become_float32(
    dtype: int, scales: tuple[int, ...], size: int, tmp_path: Path
) -> None:
    """Also with scales of blocks; activations are float32."""
    low = 0 if dtype == TensorProto.UINT4 else -8
    values = RNG.integers(low, low + 16, 32 * 8).tolist()
    stored = [
        helper.make_tensor("w", dtype, (32, 8), values),
        helper.make_tensor("z", dtype, scales, [3] * int(np.prod(scales))),
        numpy_helper.from_array(RNG.uniform(0.01, 0.05, scales).astype(np.float32), "s"),
    ]
    options = {"block_size": size, "axis": 0} if size else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wd"], **options),
        helper.make_node("MatMul", ["x", "wd"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, extent])
        for name, extent in (("x", 32), ("y", 8))
    )
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    opsets = [helper.make_opsetid("", 21)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    found = utvm_deploy.verify(path, "host", samples=2)
    assert found.ok
