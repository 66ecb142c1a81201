"""Variants of ONNX operators, and of their versions, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper
from onnx_writer import OnnxWriter
from onnxruntime.quantization import QuantFormat

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx.model import onnx_to_model

IMAGE = (1, 6, 9, 8)


def _mixed(writer: OnnxWriter) -> str:
    return writer.conv("x", 6, 6, 1, 1)


def _resize(writer: OnnxWriter, *scales: float, **attributes: Any) -> str:
    factors = writer.constant(np.array((1, 1, *scales), np.float32))
    return str(writer.add("Resize", _mixed(writer), "", factors, **attributes))


def _pad(writer: OnnxWriter, x: str, fill: float) -> str:
    amounts = writer.constant(np.array([0, 1, 2, 0, 0, 0, 1, 1]))
    return str(writer.add("Pad", x, amounts, writer.constant(np.float32(fill))))


def _transposed(writer: OnnxWriter, **attributes: Any) -> str:
    weights, bias = writer.normal(6, 4, 3, 3), writer.normal(4)
    return str(writer.add("ConvTranspose", "x", weights, bias, strides=[2, 2], **attributes))


VARIANTS: dict[str, Callable[[OnnxWriter], str]] = {
    # 8 columns times 0.3 are 2.4: pixels lie 1/0.3 apart, not 8/2.
    "nearest_by_scales": lambda w: _resize(w, 0.5, 0.3, nearest_mode="floor"),
    "nearest_asymmetric": lambda w: _resize(
        w, 0.7, 1.3, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    # Rows behind a Relu have no negative steps.
    "pad_below_the_range": lambda w: _pad(w, w.add("Relu", _mixed(w)), -0.7),
    "pad_above_the_range": lambda w: _pad(w, w.add("Sigmoid", _mixed(w)), 3.0),
    "transposed_to_a_shape": lambda w: _transposed(w, output_shape=[18, 16]),
    "transposed_same_upper": lambda w: _transposed(w, auto_pad="SAME_UPPER"),
    "transposed_same_lower": lambda w: _transposed(w, auto_pad="SAME_LOWER"),
}


def _steps_apart(path: Path) -> float:
    """How many steps of its scale the output is from onnxruntime's, at most."""
    interpreter = Interpreter(
        model_content=onnx_to_model(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    (last,) = [op for op in interpreter._get_ops_details() if target["index"] in op["outputs"]]
    scales = {d["index"]: d["quantization"][0] for d in interpreter.get_tensor_details()}
    rng, found = np.random.default_rng(1), 0.0
    for _ in range(3):
        x = rng.normal(0, 1, source["shape"]).astype(np.float32)
        interpreter.set_tensor(source["index"], x)
        interpreter.invoke()
        ours, theirs = interpreter.get_tensor(target["index"]), session.run(None, {"x": x})[0]
        assert ours.shape == theirs.shape
        found = max(found, float(np.abs(ours - theirs).max() / scales[int(last["inputs"][0])]))
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_two_steps_away_at_most(tmp_path: Path, name: str) -> None:
    # The quantizer makes no QOperator of a transposed convolution.
    forms = [QuantFormat.QDQ, QuantFormat.QOperator][: 1 if "transposed" in name else 2]
    for form in forms:
        writer = OnnxWriter(IMAGE)
        made = VARIANTS[name](writer)
        assert _steps_apart(writer.quantized(tmp_path, made, form=form)) < 2.1


def test_a_softmax_of_old_versions_is_over_all_dimensions_behind_the_axis(tmp_path: Path) -> None:
    for axis in (1, 2, 3):
        writer = OnnxWriter(IMAGE, opset=12)
        made = writer.add("Softmax", _mixed(writer), axis=axis)
        assert _steps_apart(writer.quantized(tmp_path, made, per_channel=False)) < 2.1


def test_scales_by_channel_of_qlinear_operators_in_old_versions(tmp_path: Path) -> None:
    writer = OnnxWriter(IMAGE, opset=12)
    made = writer.conv("x", 6, 7, 3, 3)
    assert _steps_apart(writer.quantized(tmp_path, made, form=QuantFormat.QOperator)) < 2.1


def test_blocks_of_int16(tmp_path: Path) -> None:
    for kind, channels, moved in (("SpaceToDepth", 3, 12), ("DepthToSpace", 8, 2)):
        writer = OnnxWriter((1, 6, 8, 8))
        made = writer.add(kind, writer.conv("x", 6, channels, 1, 1), blocksize=2)
        made = writer.conv(made, moved, 3, 1, 1)
        assert _steps_apart(writer.quantized(tmp_path, made, wide=True)) < 2.1


def test_matrices_of_int8_by_rows_of_int16(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 3, 5, 8))
    made = writer.add("MatMul", "x", writer.normal(1, 3, 8, 4))
    assert _steps_apart(writer.quantized(tmp_path, made, wide=True, per_channel=False)) < 2.1


REFUSED: dict[str, tuple[Callable[[OnnxWriter], str], str]] = {
    "linear": (lambda w: _resize(w, 0.7, 2.0, mode="linear"), "give it sizes instead of scales"),
    "ceil": (
        lambda w: str(
            w.add("MaxPool", _mixed(w), kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)
        ),
        "last window begins after the last row or column",
    ),
    "dropout": (
        lambda w: str(
            w.add("Dropout", _mixed(w), w.constant(np.float32(0.5)), w.constant(np.array(True)))
        ),
        "may be for training",
    ),
    "vector": (lambda w: str(w.add("MatMul", _mixed(w), w.normal(8))), "multiplies by a vector"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_runtimes_do_otherwise_is_refused(tmp_path: Path, name: str) -> None:
    build, told = REFUSED[name]
    writer = OnnxWriter(IMAGE)
    path = writer.quantized(tmp_path, build(writer))
    with pytest.raises(UnsupportedOperator, match=told):
        onnx_to_model(path)


def test_integers_are_not_taken_for_reals(tmp_path: Path) -> None:
    """A Relu of int8 cuts off at 0, which stands for another number."""
    scale, zero = np.float32(0.1), np.int8(-20)
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in (("s", scale), ("z", zero))]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Identity", ["q"], ["same"]),
        helper.make_node("Relu", ["same"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedOperator, match="computes with the integers of 'same'"):
        onnx_to_model(tmp_path / "m.onnx")
