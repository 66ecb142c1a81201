"""ONNX models of float32 become firmware by way of Relax."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

RNG = np.random.default_rng(15)


def constant(name: str, *shape: int) -> onnx.TensorProto:
    values = RNG.standard_normal(shape) * 0.3
    return numpy_helper.from_array(values.astype(np.float32), name)


def network(path: Path, batch: int | str = "N", dtype: int = TensorProto.FLOAT) -> Path:
    """Convolution, batch normalization, pooling, dense layer, as a training tool exports them."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    variance = numpy_helper.from_array(np.array([1.5, 0.5, 2.0, 0.7], np.float32), "variance")
    constants = [
        constant("w1", 4, 3, 3, 3),
        *(constant(name, 4) for name in ("b1", "scale", "shift", "mean")),
        variance,
        constant("w2", 5, 4),
        constant("b2", 5),
    ]
    ends = [
        helper.make_tensor_value_info("x", dtype, [batch, 3, 8, 8]),
        helper.make_tensor_value_info("y", dtype, [batch, 5]),
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def test_a_network_becomes_a_graph(tmp_path: Path) -> None:
    graph = load_model(network(tmp_path / "network.onnx"))
    kinds = [operator.kind for operator in graph.operators]
    assert kinds[-1] == "FULLY_CONNECTED" and "CALL_TIR" in kinds
    assert [graph.tensors[i].shape for i in graph.inputs] == [(1, 3, 8, 8)]
    assert [graph.tensors[i].shape for i in graph.outputs] == [(1, 5)]


@pytest.mark.tools
def test_a_network_on_the_host(tmp_path: Path) -> None:
    path = network(tmp_path / "network.onnx")
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    reference = run_reference(path, [x])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": x})
    np.testing.assert_allclose(reference.outputs[0][0], theirs, rtol=1e-5, atol=1e-6)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, board="host"), into="ram")
        np.testing.assert_allclose(model(x), theirs, rtol=1e-5, atol=1e-6)


def test_float16_is_taken_as_float32(tmp_path: Path) -> None:
    graph = load_model(network(tmp_path / "half.onnx", dtype=TensorProto.FLOAT16))
    ends = (*graph.inputs, *graph.outputs)
    assert {graph.tensors[number].dtype for number in ends} == {"float32"}


def test_a_symbolic_shape_is_named(tmp_path: Path) -> None:
    path = network(tmp_path / "network.onnx")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    onnx.save(model, path)
    with pytest.raises(ModelError, match="'x' has the symbolic shape"):
        load_model(path)


def single(path: Path, nodes: list[onnx.NodeProto], *constants: onnx.TensorProto) -> Path:
    """Operators between ``x``, an image of four channels and four columns, and ``y``."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4, 4]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "single", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def equals_onnxruntime(path: Path) -> bool:
    """Whether the reference computes what onnxruntime does."""
    x = RNG.standard_normal((1, 4, 4, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": x})
    return np.allclose(run_reference(path, [x]).outputs[0][0], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.tools
def test_slopes_of_prelu_are_along_their_dimension(tmp_path: Path) -> None:
    """TVM's importer takes them along the last one, which here has the same extent."""
    node = helper.make_node("PRelu", ["x", "slopes"], ["y"])
    assert equals_onnxruntime(single(tmp_path / "p.onnx", [node], constant("slopes", 4, 1, 1)))


@pytest.mark.tools
def test_operators_without_a_layout_keep_that_of_the_file(tmp_path: Path) -> None:
    """TVM's importer makes a stack of Max, whose layout TVM cannot convert."""
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Max", ["c", "x"], ["y"]),
    ]
    assert equals_onnxruntime(single(tmp_path / "m.onnx", nodes, constant("weights", 4, 4, 1, 1)))


@pytest.mark.tools
def test_further_outputs_of_a_normalization(tmp_path: Path) -> None:
    """TVM's importer makes zeros of them."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n", "mean"]),
        helper.make_node("Add", ["n", "mean"], ["y"]),
    ]
    assert equals_onnxruntime(single(tmp_path / "n.onnx", nodes, constant("scale", 4)))


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (helper.make_node("Dropout", ["x", "", "true"], ["y"]), "may be for training"),
        (
            helper.make_node("RoiAlign", ["x", "boxes", "zero"], ["y"], mode="max"),
            "has the mode 'max'",
        ),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_what_the_importer_of_tvm_makes_wrong_is_refused(
    node: onnx.NodeProto, said: str, tmp_path: Path
) -> None:
    """Each makes wrong values without an error of TVM's."""
    constants = [
        numpy_helper.from_array(np.array(True), "true"),
        numpy_helper.from_array(np.zeros(1, np.int64), "zero"),
        constant("boxes", 1, 4),
    ]
    path = single(tmp_path / "wrong.onnx", [node], *constants)
    place = rf"operator 0 \({node.op_type}\), which makes 'y',"
    with pytest.raises(ModelError, match=f"{place} {said}"):
        load_model(path)


@pytest.mark.tools
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_that_make_a_part_of_an_element(mode: str, tmp_path: Path) -> None:
    """TVM would read other places of the input, because it computes the scale from the sizes."""
    scales = numpy_helper.from_array(np.array([1, 1, 1.3, 1.3], np.float32), "scales")
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    path = single(tmp_path / "r.onnx", [node], scales)
    model = onnx.load(path)
    for place in (2, 3):
        model.graph.output[0].type.tensor_type.shape.dim[place].dim_value = 5
    onnx.save(model, path)
    assert equals_onnxruntime(path)


def test_a_model_without_operators(tmp_path: Path) -> None:
    path = single(tmp_path / "i.onnx", [helper.make_node("Identity", ["x"], ["y"])])
    assert [operator.kind for operator in load_model(path).operators] == ["RESHAPE"]


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    shape: list[int],
    made: list[int],
    constants: dict[str, np.ndarray],
    opset: int = 17,
) -> Path:
    """Operators between ``x`` and ``y``."""
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)
        for name, extents in (("x", shape), ("y", made))
    )
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "saved", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.tools
def test_slopes_of_prelu_before_opset_7_are_along_the_channels(tmp_path: Path) -> None:
    """Here the last dimension has as many elements as there are channels."""
    slopes = np.array([0.5, -0.25, 2], np.float32)
    node = helper.make_node("PRelu", ["x", "slopes"], ["y"])
    shape = [1, 3, 2, 3]
    path = saved(tmp_path / "p.onnx", [node], shape, shape, {"slopes": slopes}, 6)
    x = RNG.standard_normal(shape).astype(np.float32)
    expected = np.where(x < 0, x * slopes.reshape(3, 1, 1), x)
    assert np.array_equal(run_reference(path, [x]).outputs[0][0], expected)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.tools
def test_ends_of_a_slice_that_are_computed_from_shapes(tmp_path: Path) -> None:
    """As an upsampling layer crops: the extent by a factor, rounded down, in float32."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["extent"], axis=0),
        helper.make_node("Cast", ["extent"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "factor"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["floor"]),
        helper.make_node("Cast", ["floor"], ["end"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["end", "zero"], ["ends"]),
        helper.make_node("Slice", ["x", "zero", "ends", "axis"], ["y"]),
    ]
    constants = {
        "one": np.array(1, np.int64),
        "factor": np.array(0.6, np.float32),
        "zero": integers(0),
        "axis": integers(1),
    }
    path = saved(tmp_path / "s.onnx", nodes, [1, 9], [1, 5], constants)
    x = RNG.standard_normal((1, 9)).astype(np.float32)
    assert np.array_equal(run_reference(path, [x]).outputs[0][0], x[:, :5])


@pytest.mark.parametrize("extent", [0, -1])
def test_a_batch_extent_that_is_no_extent_becomes_one(
    extent: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    path = saved(tmp_path / "b.onnx", [node], [extent, 3], [extent, 3], {})
    graph = load_model(path)
    assert [graph.tensors[n].shape for n in (*graph.inputs, *graph.outputs)] == [(1, 3)] * 2
    assert "the batch '?' of input 'x' is bound to 1" in caplog.text
    with given_only(Chosen({"x": (2, 3)})):
        graph = load_model(path)
    assert graph.tensors[graph.inputs[0]].shape == (2, 3)


SCATTERS = {
    "elements": ("ScatterElements", [[0, 3], [4, 1]], (2, 2), {"axis": 1}),
    "sums of elements": ("ScatterElements", [[3, 3], [-1, 1]], (2, 2), {"reduction": "add"}),
    "rows": ("ScatterND", [[3], [0]], (2, 5), {}),
    "sums of rows": ("ScatterND", [[1], [1]], (2, 5), {"reduction": "add"}),
    "points": ("ScatterND", [[3, 4], [0, 1]], (2,), {}),
}


@pytest.mark.tools
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_compute_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    kind, positions, shape, attributes = SCATTERS[name]
    constants = {
        "positions": np.array(positions, np.int64),
        "updates": RNG.standard_normal(shape).astype(np.float32),
    }
    node = helper.make_node(kind, ["x", "positions", "updates"], ["y"], **attributes)
    path = saved(tmp_path / "s.onnx", [node], [4, 5], [4, 5], constants)
    x = RNG.standard_normal((4, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": x})
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host"), into="ram")
        (ours,), _ = model.run([x])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
