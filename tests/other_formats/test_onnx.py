"""ONNX models in QDQ form: what they become, and how far that is from onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper
from onnx_writer import OnnxWriter
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.origin import difference
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.verifying.on_board import verify

IMAGE = (1, 6, 9, 8)
ROW = (1, 24)
SEQUENCE = (1, 5, 20)

#: Shape of the input, and the operator under test.
ONE_OPERATOR: dict[str, tuple[tuple[int, ...], Callable[[OnnxWriter], str]]] = {
    "conv": (IMAGE, lambda w: w.conv("x", 6, 7, 3, 3)),
    "conv_same": (IMAGE, lambda w: w.conv("x", 6, 7, 3, 3, pads=[1, 1, 1, 1])),
    "conv_stride": (IMAGE, lambda w: w.conv("x", 6, 7, 3, 3, pads=[1, 1, 1, 1], strides=[2, 2])),
    "conv_uneven": (IMAGE, lambda w: w.conv("x", 6, 5, 2, 3, pads=[2, 0, 1, 3])),
    "conv_auto": (IMAGE, lambda w: w.conv("x", 6, 5, 3, 3, auto_pad="SAME_LOWER", strides=[2, 2])),
    "conv_dilated": (IMAGE, lambda w: w.conv("x", 6, 4, 3, 3, dilations=[2, 1])),
    "conv_grouped": (IMAGE, lambda w: w.conv("x", 6, 4, 3, 3, group=2)),
    "conv_depthwise": (IMAGE, lambda w: w.conv("x", 6, 6, 3, 3, group=6)),
    "conv_multiplier": (IMAGE, lambda w: w.conv("x", 6, 12, 3, 3, group=6)),
    "conv_1d": (SEQUENCE, lambda w: w.conv("x", 5, 4, 3, pads=[1, 0], strides=[2])),
    "relu_behind": (IMAGE, lambda w: w.add("Relu", w.conv("x", 6, 7, 3, 3))),
    "relu6_behind": (IMAGE, lambda w: _clip(w, w.conv("x", 6, 7, 3, 3), 0.0, 6.0)),
    "clip_behind": (IMAGE, lambda w: _clip(w, w.conv("x", 6, 7, 3, 3), -0.5, 0.75)),
    "gemm": (ROW, lambda w: w.add("Gemm", "x", w.normal(24, 10), w.normal(10))),
    "gemm_turned": (ROW, lambda w: w.add("Gemm", "x", w.normal(10, 24), transB=1)),
    "matmul": (ROW, lambda w: w.add("MatMul", "x", w.normal(24, 10))),
    "matmul_rank_3": (SEQUENCE, lambda w: w.add("MatMul", "x", w.normal(20, 7))),
    "add_channel": (IMAGE, lambda w: w.add("Add", "x", w.normal(1, 6, 1, 1))),
    "mul": (IMAGE, lambda w: w.add("Mul", "x", w.normal(6, 1, 1))),
    "add_itself": (IMAGE, lambda w: w.add("Add", "x", w.conv("x", 6, 6, 1, 1))),
    "leaky_relu": (IMAGE, lambda w: w.add("LeakyRelu", "x", alpha=0.125)),
    "sigmoid": (ROW, lambda w: w.add("Sigmoid", "x")),
    "softmax": (ROW, lambda w: w.add("Softmax", "x", axis=-1)),
    "log_softmax": (ROW, lambda w: w.add("LogSoftmax", w.add("Gemm", "x", w.normal(24, 90)))),
    "max_pool": (IMAGE, lambda w: w.add("MaxPool", _mixed(w), kernel_shape=[2, 2], strides=[2, 2])),
    "max_pool_ceil": (
        IMAGE,
        lambda w: w.add("MaxPool", _mixed(w), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    ),
    "average_pool": (IMAGE, lambda w: w.add("AveragePool", _mixed(w), kernel_shape=[2, 3])),
    "average_counted": (
        IMAGE,
        lambda w: w.add(
            "AveragePool", _mixed(w), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
        ),
    ),
    "global_average": (IMAGE, lambda w: w.add("GlobalAveragePool", "x")),
    "concat": (IMAGE, lambda w: w.add("Concat", "x", w.conv("x", 6, 2, 1, 1), axis=1)),
    "flatten_gemm": (
        IMAGE,
        lambda w: w.add("Gemm", w.add("Flatten", w.conv("x", 6, 3, 1, 1)), w.normal(216, 4)),
    ),
    "transpose": (IMAGE, lambda w: w.add("Transpose", w.conv("x", 6, 3, 3, 3), perm=[0, 3, 1, 2])),
    "reshape": (
        IMAGE,
        lambda w: w.add("Reshape", w.conv("x", 6, 4, 3, 3), w.constant(np.array([1, 21, 8]))),
    ),
    "resize": (
        IMAGE,
        lambda w: w.add(
            "Resize",
            _mixed(w),
            "",
            w.constant(np.array([1, 1, 2, 2], np.float32)),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    ),
    "pad": (
        IMAGE,
        lambda w: w.add("Pad", _mixed(w), w.constant(np.array([0, 1, 2, 0, 0, 0, 1, 1]))),
    ),
    "transposed": (IMAGE, lambda w: _transposed(w, 4, 3, 3)),
    "transposed_stride": (
        IMAGE,
        lambda w: _transposed(w, 4, 3, 3, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    ),
    "transposed_uneven": (
        IMAGE,
        lambda w: _transposed(w, 3, 2, 3, strides=[3, 2], pads=[0, 1, 1, 0], dilations=[1, 2]),
    ),
    "transposed_1d": (
        SEQUENCE,
        lambda w: w.add("ConvTranspose", "x", w.normal(5, 4, 3), w.normal(4), strides=[2]),
    ),
    "softmax_channels": (IMAGE, lambda w: w.add("Softmax", _mixed(w), axis=2)),
    "negated": (ROW, lambda w: w.add("Mul", w.add("Neg", _row_above_zero(w)), w.normal(24))),
    "divided": (ROW, lambda w: w.add("Div", _row(w), w.constant(np.float32(3.5)))),
    "gather": (
        IMAGE,
        lambda w: w.add("Gather", _mixed(w), w.constant(np.array([5, 0, -2])), axis=1),
    ),
    "backwards": (
        IMAGE,
        lambda w: w.add(
            "Slice",
            _mixed(w),
            *(w.constant(np.array(v)) for v in ([7, 1], [-(2**60), 9], [3, 2], [-2, 3])),
        ),
    ),
    "resize_odd": (
        IMAGE,
        lambda w: w.add(
            "Resize",
            _mixed(w),
            "",
            "",
            w.constant(np.array([1, 6, 14, 11])),
            mode="nearest",
            coordinate_transformation_mode="half_pixel",
        ),
    ),
}

#: Operators that the quantizer leaves in float32, between quantized ones.
ISLANDS: dict[str, tuple[tuple[int, ...], Callable[[OnnxWriter], str]]] = {
    "layer_norm": (
        SEQUENCE,
        lambda w: w.add("LayerNormalization", "x", w.normal(20), w.normal(20)),
    ),
    "instance_norm": (
        IMAGE,
        lambda w: w.add("InstanceNormalization", _mixed(w), w.normal(6), w.normal(6)),
    ),
    "batch_norm": (
        IMAGE,
        lambda w: w.add(
            "BatchNormalization",
            w.add("Relu", _mixed(w)),
            *(w.normal(6) for _ in range(3)),
            w.constant(np.abs(w.rng.normal(1, 0.2, 6)).astype(np.float32)),
        ),
    ),
    "exp": (ROW, lambda w: w.add("Exp", w.add("Sigmoid", "x"))),
    "log": (ROW, lambda w: w.add("Log", w.add("Exp", w.add("Sigmoid", "x")))),
    "root": (ROW, lambda w: w.add("Sqrt", w.add("Sigmoid", "x"))),
    "elu": (IMAGE, lambda w: w.add("Elu", _mixed(w), alpha=0.7)),
    "selu": (ROW, lambda w: w.add("Selu", _row(w))),
    "softplus": (ROW, lambda w: w.add("Softplus", w.add("Mul", "x", w.normal(24, scale=30.0)))),
    "hard_sigmoid": (ROW, lambda w: w.add("HardSigmoid", _row(w), alpha=0.3)),
    "power": (ROW, lambda w: w.add("Pow", _row(w), w.constant(np.float32(2)))),
    "quotient": (
        ROW,
        lambda w: w.add("Div", "x", w.add("Add", w.add("Sigmoid", "x"), w.constant(np.float32(1)))),
    ),
    "where": (
        ROW,
        lambda w: _where(w, _row(w)),
    ),
    "tile": (
        SEQUENCE,
        lambda w: w.add("Tile", w.conv("x", 5, 5, 1), w.constant(np.array([1, 2, 3]))),
    ),
    "expand": (
        (1, 1, 24),
        lambda w: w.add("Expand", w.conv("x", 1, 1, 1), w.constant(np.array([1, 5, 24]))),
    ),
    "least": (IMAGE, lambda w: w.add("ReduceMin", _mixed(w), axes=[2, 3])),
    "product": (IMAGE, lambda w: w.add("ReduceProd", _mixed(w), axes=[2])),
    "sum": (IMAGE, lambda w: w.add("CumSum", _mixed(w), w.constant(np.array(2)))),
    "softsign": (ROW, lambda w: w.add("Softsign", _row(w))),
    "reciprocal": (ROW, lambda w: w.add("Reciprocal", w.add("Exp", w.add("Sigmoid", "x")))),
    "batch_matmul": (SEQUENCE, lambda w: w.add("MatMul", "x", w.normal(1, 20, 7))),
}


def _row(writer: OnnxWriter) -> str:
    return str(writer.add("Gemm", "x", writer.normal(24, 24)))


def _where(writer: OnnxWriter, x: str) -> str:
    is_larger = writer.add("Greater", x, writer.normal(24))
    return str(writer.add("Where", is_larger, x, writer.normal(24)))


def _row_above_zero(writer: OnnxWriter) -> str:
    """Zero points of such rows are far from 0."""
    return str(writer.add("Relu", _row(writer)))


def _transposed(writer: OnnxWriter, outputs: int, *kernel: int, **attributes: Any) -> str:
    weights, bias = writer.normal(6, outputs, *kernel), writer.normal(outputs)
    return str(writer.add("ConvTranspose", "x", weights, bias, **attributes))


def _mixed(writer: OnnxWriter) -> str:
    """Something quantized: onnxruntime's quantizer leaves alone what only moves the input."""
    return writer.conv("x", 6, 6, 1, 1)


def _clip(writer: OnnxWriter, x: str, low: float, high: float) -> str:
    limits = (writer.constant(np.float32(limit)) for limit in (low, high))
    return str(writer.add("Clip", x, *limits))


def _mobile(writer: OnnxWriter) -> str:
    x = writer.add("Relu", writer.conv("x", 1, 8, 3, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    y = writer.add("Relu", writer.conv(x, 8, 8, 3, 3, group=8, pads=[1, 1, 1, 1]))
    x = writer.add("Add", x, writer.conv(y, 8, 8, 1, 1))
    x = writer.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = writer.add("Gemm", writer.add("Flatten", x), writer.normal(160, 10), writer.normal(10))
    return str(writer.add("Softmax", x, axis=-1))


def _grouped(writer: OnnxWriter) -> str:
    x = writer.add("MaxPool", writer.conv("x", 4, 12, 3, 3, dilations=[2, 2]), kernel_shape=[2, 2])
    x = writer.add("AveragePool", writer.conv(x, 12, 12, 1, 1), kernel_shape=[2, 2])
    x = writer.add("Flatten", writer.add("GlobalAveragePool", x))
    return str(writer.add("Add", writer.add("MatMul", x, writer.normal(12, 5)), writer.normal(5)))


def _summed(writer: OnnxWriter) -> str:
    x = writer.conv("x", 6, 6, 3, 3)
    x = writer.add("ReduceSum", x, writer.constant(np.array([2, 3])))
    return str(writer.conv(x, 6, 20, 1, 1))


def _outputs(path: Path, samples: int) -> tuple[np.ndarray, np.ndarray, float]:
    """What LiteRT makes of the converted file, what onnxruntime makes of the file, and a step."""
    data = converted(path)
    assert data is not None
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    session = onnxruntime.InferenceSession(path, _as_written())
    rng = np.random.default_rng(1)
    ours, theirs = [], []
    for _ in range(samples):
        x = rng.normal(0, 1, source["shape"]).astype(np.float32)
        interpreter.set_tensor(source["index"], x)
        interpreter.invoke()
        ours.append(interpreter.get_tensor(target["index"]))
        theirs.append(session.run(None, {"x": x})[0])
    (last,) = [op for op in interpreter._get_ops_details() if target["index"] in op["outputs"]]
    details = {d["index"]: d for d in interpreter.get_tensor_details()}
    return np.array(ours), np.array(theirs), details[int(last["inputs"][0])]["quantization"][0]


def _as_written() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options


@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("name", ONE_OPERATOR)
def test_one_operator_is_at_most_a_step_away(tmp_path: Path, name: str, unsigned: bool) -> None:
    shape, build = ONE_OPERATOR[name]
    writer = OnnxWriter(shape)
    path = writer.quantized(tmp_path, build(writer), unsigned=unsigned, per_channel=not unsigned)
    ours, theirs, step = _outputs(path, samples=4)
    assert ours.shape == theirs.shape
    # Made with TFLite's own scale first, then requantized: a step of each.
    allowed = (
        2
        if name
        in ("add_itself", "average_counted", "average_pool", "concat", "flatten_gemm", "softmax")
        else 1
    )
    assert np.abs(ours - theirs).max() <= (allowed + 0.01) * step
    assert np.ptp(theirs) > 20 * step, "a test whose values are all alike shows nothing"


@pytest.mark.parametrize("name", ISLANDS)
def test_float_operators_between_quantized_ones(tmp_path: Path, name: str) -> None:
    shape, build = ISLANDS[name]
    writer = OnnxWriter(shape)
    ours, theirs, _ = _outputs(writer.quantized(tmp_path, build(writer)), samples=4)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 0.02 * np.ptp(theirs)


def _with_shapes(writer: OnnxWriter) -> str:
    """A reshape by what Shape says, as exporters write it."""
    x = writer.conv("x", 6, 4, 3, 3)
    batch = writer.add("Gather", writer.add("Shape", x), writer.constant(np.array([0])))
    target = writer.add("Concat", batch, writer.constant(np.array([-1])), axis=0)
    return str(writer.add("Gemm", writer.add("Reshape", x, target), writer.normal(168, 5)))


QLINEAR: dict[str, tuple[tuple[int, ...], Callable[[OnnxWriter], str]]] = {
    "mobile": ((1, 1, 16, 20), lambda w: _mobile(w)),
    "grouped": ((1, 4, 16, 12), lambda w: _grouped(w)),
    "products": (
        IMAGE,
        lambda w: w.add(
            "Concat",
            w.add("Mul", w.conv("x", 6, 3, 1, 1), w.add("Sigmoid", w.conv("x", 6, 3, 1, 1))),
            w.add("LeakyRelu", w.conv("x", 6, 2, 1, 1), alpha=0.1),
            w.add("AveragePool", w.conv("x", 6, 2, 1, 1), kernel_shape=[1, 1]),
            axis=1,
        ),
    ),
    "shapes": (IMAGE, _with_shapes),
}


@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("name", QLINEAR)
def test_qlinear_operators(tmp_path: Path, name: str, unsigned: bool) -> None:
    shape, build = QLINEAR[name]
    writer = OnnxWriter(shape)
    path = writer.quantized(tmp_path, build(writer), unsigned=unsigned, form=QuantFormat.QOperator)
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert kinds & {"QLinearConv", "QGemm", "QLinearMatMul"}
    ours, theirs, step = _outputs(path, samples=4)
    assert np.abs(ours - theirs).max() <= 3.01 * step


#: Steps that some may be away: tables of LiteRT's have fewer bits than float32.
WIDE_STEPS = {"sigmoid": 8.0, "softmax": 8.0}
#: What has kernels for int16 activations.
WIDE = (
    *("conv", "conv_uneven", "conv_grouped", "conv_depthwise", "relu_behind", "gemm", "matmul"),
    *("add_channel", "mul", "add_itself", "sigmoid", "softmax", "max_pool", "average_pool"),
    *("concat", "flatten_gemm", "transpose", "reshape", "leaky_relu", "pad"),
)


@pytest.mark.parametrize("unsigned", [False, True], ids=["int16", "uint16"])
@pytest.mark.parametrize("name", WIDE)
def test_one_operator_of_int16_is_close(tmp_path: Path, name: str, unsigned: bool) -> None:
    shape, build = ONE_OPERATOR[name]
    writer = OnnxWriter(shape)
    path = writer.quantized(tmp_path, build(writer), unsigned=unsigned, wide=True)
    assert "int16" in {tensor.dtype for tensor in load_model(path).tensors}
    ours, theirs, step = _outputs(path, samples=4)
    assert np.abs(ours - theirs).max() <= WIDE_STEPS.get(name, 2.01) * step
    assert np.ptp(theirs) > 5000 * step


def test_int16_off_the_middle_is_refused(tmp_path: Path) -> None:
    writer = OnnxWriter(ROW)
    path = writer.quantized(tmp_path, writer.add("Gemm", "x", writer.normal(24, 10)), wide=True)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == "x_zero_point":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(3, np.int16), tensor.name))
    onnx.save(model, path)
    with pytest.raises(UnsupportedOperator, match="ActivationSymmetric"):
        load_model(path)


NETWORKS: dict[str, tuple[tuple[int | str, ...], Callable[[OnnxWriter], str]]] = {
    "one_channel": (("batch", 1, 20, 16), _mobile),
    "grouped": (("batch", 4, 9, 9), _grouped),
    "summed": (("batch", 6, 9, 8), _summed),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network_equals_the_reference_on_the_device(tmp_path: Path, name: str) -> None:
    shape, build = NETWORKS[name]
    writer = OnnxWriter(shape)
    path = writer.quantized(tmp_path, build(writer))
    graph = load_model(path)
    samples = random_samples(graph, 3)
    reference = run_reference(path, samples.inputs)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"), into="ram")
        assert verify(model, path, samples, reference=reference).ok
    found = difference(path, graph, samples.inputs, reference.outputs)
    assert found is not None and found.elements >= 15
    assert found.largest_steps <= 3


def test_verify_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = OnnxWriter((1, 1, 20, 16))
    path = writer.quantized(tmp_path, _mobile(writer))
    assert main(["verify", str(path), "--board", "host", "--samples", "2"]) == 0
    said = capsys.readouterr().out
    assert "all equal to LiteRT" in said and "compared with onnxruntime" in said


def test_one_channel_costs_no_transposition(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 1, 20, 16))
    kinds = [op.kind for op in load_model(writer.quantized(tmp_path, _mobile(writer))).operators]
    assert "TRANSPOSE" not in kinds


def test_all_unsupported_operators_are_named(tmp_path: Path) -> None:
    writer = OnnxWriter(IMAGE)
    x = writer.add("Relu", writer.conv("x", 6, 4, 3, 3))
    left, right = writer.add("Hardmax", x), writer.add("Acosh", x)
    path = writer.quantized(tmp_path, left, right)
    with pytest.raises(UnsupportedOperator, match=r"2 operators .*\(Hardmax\).*\(Acosh\)"):
        load_model(path)


def test_result_in_real_numbers_is_computed_in_float32(tmp_path: Path) -> None:
    writer = OnnxWriter(ROW)
    x = writer.add("Gemm", "x", writer.normal(24, 10), writer.normal(10))
    path = writer.quantized(tmp_path, x)
    model = onnx.load(path)
    behind = {name for node in model.graph.node[-2:] for name in node.output}
    made = model.graph.node[-3].output[0]
    del model.graph.node[-2:]
    assert behind
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(made, TensorProto.FLOAT, (1, 10)))
    onnx.save(model, path)
    graph = load_model(path)
    assert graph.tensors[graph.outputs[0]].dtype == "float32"
    assert [op.kind for op in graph.operators][-2:] == ["DEQUANTIZE", "FULLY_CONNECTED"]


def test_dynamic_quantization_is_named_with_the_way_out(tmp_path: Path) -> None:
    w = OnnxWriter((1, 2, 6, 6))
    whole = w.save(tmp_path / "float.onnx", w.add("Relu", w.conv("x", 2, 3, 3, 3)))
    path = tmp_path / "model.onnx"
    quantize_dynamic(whole, path, weight_type=QuantType.QUInt8)
    with pytest.raises(UnsupportedOperator, match=r"\(ConvInteger\), .* by .* quantize_static"):
        load_model(path)


def test_free_dimension_is_refused(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 6, 9, 8))
    path = writer.quantized(tmp_path, writer.conv("x", 6, 2, 3, 3))
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    onnx.save(model, path)
    with pytest.raises(ModelError, match=r"shape of '.*' is not fixed"):
        load_model(path)


def test_constants_elsewhere_are_refused(tmp_path: Path) -> None:
    writer = OnnxWriter(ROW)
    path = writer.quantized(tmp_path, writer.add("MatMul", "x", writer.normal(24, 100)))
    onnx.save(
        onnx.load(path), path, save_as_external_data=True, location="weights", size_threshold=0
    )
    with pytest.raises(ModelError, match=r"is in another file; .*external_data=False"):
        load_model(path)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\x09" * 40])
def test_other_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.onnx"):
        load_model(path)


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"pip install 'utvm-deploy\[onnx\]'"):
        onnx_to_model(path)
