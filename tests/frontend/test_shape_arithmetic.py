"""What a model computes from shapes is known at import; what is left computes as the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import sample_inputs
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

_MASKS = {f"{name}Mask": 0 for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}


def _ints(m: ModelWriter, *values: object) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def _flattened(m: ModelWriter) -> None:
    """What Keras makes of Reshape where the batch was left open."""
    x = m.input((1, 4, 3, 2), 0.1, 3)
    shape = m.node("SHAPE", [x], (4,), ("ShapeOptions", {"OutType": 2}), dtype="int32")
    options = ("StridedSliceOptions", {**_MASKS, "ShrinkAxisMask": 1})
    batch = m.node("STRIDED_SLICE", [shape, *_ints(m, [0], [1], [1])], (), options)
    rows, columns = (
        m.node("GATHER", [shape, *_ints(m, i)], (), ("GatherOptions", {"Axis": 0})) for i in (1, 2)
    )
    fused = {"FusedActivationFunction": 0}
    pixels = m.node("MUL", [rows, columns], (), ("MulOptions", fused))
    whole = m.node("ADD", [pixels, pixels], (), ("AddOptions", fused))
    target = m.node("PACK", [batch, whole], (2,), ("PackOptions", {"Axis": 0, "ValuesCount": 2}))
    flat = m.tensor((1, 24), "int8", 0.1, 3)
    m.operator("RESHAPE", [x, target], [flat], ("ReshapeOptions", {}))
    m.output(m.softmax(flat))


def test_shapes_are_folded(tmp_path: Path) -> None:
    m = ModelWriter()
    _flattened(m)
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    assert [operator.kind for operator in graph.operators] == ["RESHAPE", "SOFTMAX"]
    inputs = sample_inputs(m)
    expected = run_reference(path, [inputs]).outputs[0][0]
    np.testing.assert_array_equal(run_graph(graph, inputs)[graph.outputs[0]], expected)


def test_shapes_that_contradict_the_file(tmp_path: Path) -> None:
    m = ModelWriter()
    _flattened(m)
    m.tensors[m.operators[0].outputs[0]].shape = (3,)
    with pytest.raises(ModelError, match=r"SHAPE.*computes the shape \(4,\), but the file says"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_products_are_folded(tmp_path: Path) -> None:
    """LiteRT's REDUCE_PROD does this only to tensors without any quantization table."""
    m = ModelWriter()
    x = m.input((2, 5, 3), 0.1, 3)
    shape = m.node("SHAPE", [x], (3,), ("ShapeOptions", {"OutType": 2}), dtype="int32")
    count = m.node(
        "REDUCE_PROD", [shape, *_ints(m, [-1])], (1,), ("ReducerOptions", {"KeepDims": True})
    )
    out = m.tensor((30,), "int8", 0.1, 3)
    m.operator("RESHAPE", [x, count], [out], ("ReshapeOptions", {}))
    m.output(out)
    graph = load_model(m.save(tmp_path / "model.tflite"))
    assert [operator.kind for operator in graph.operators] == ["RESHAPE"]


def test_division_by_zero(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4), 0.1, 3)
    shape = m.node("SHAPE", [x], (2,), ("ShapeOptions", {"OutType": 2}), dtype="int32")
    none = m.node("FLOOR_DIV", [shape, *_ints(m, [0, 1])], (2,))
    out = m.tensor((1, 4), "int8", 0.1, 3)
    m.operator("RESHAPE", [x, none], [out], ("ReshapeOptions", {}))
    m.output(out)
    with pytest.raises(ModelError, match="it divides by 0"):
        load_model(m.save(tmp_path / "model.tflite"))


def _first_state(m: ModelWriter) -> None:
    """What Keras makes of a recurrent layer: a batch of zeros to begin with."""
    x = m.input((2, 4), 0.1, 3)
    shape = m.node("SHAPE", [x], (2,), ("ShapeOptions", {"OutType": 2}), dtype="int32")
    options = ("StridedSliceOptions", {**_MASKS, "ShrinkAxisMask": 1})
    batch = m.node("STRIDED_SLICE", [shape, *_ints(m, [0], [1], [1])], (), options)
    m.tensors[batch].scales = m.tensors[batch].zero_points = ()
    size = m.node("PACK", [batch, *_ints(m, 3)], (2,), ("PackOptions", {"ValuesCount": 2}))
    value = m.tensor((), "int8", 0.05, -7, data=np.array(-7))
    zeros = m.tensor((2, 3), "int8", 0.05, -7)
    m.operator("FILL", [size, value], [zeros], ("FillOptions", {}))
    weights = np.arange(-12, 12, dtype=np.int8)
    state = m.fully_connected(zeros, weights[:9].reshape(3, 3), np.array([5, -3, 90], np.int32))
    y = m.fully_connected(x, weights[:12].reshape(3, 4))
    m.output(m.add(state, y, scale=0.2))


def test_a_filled_tensor_is_a_constant(tmp_path: Path) -> None:
    m = ModelWriter()
    _first_state(m)
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    kinds = [operator.kind for operator in graph.operators]
    assert kinds == ["FULLY_CONNECTED", "FULLY_CONNECTED", "ADD"]
    inputs = sample_inputs(m)
    expected = run_reference(path, [inputs]).outputs[0][0]
    np.testing.assert_array_equal(run_graph(graph, inputs)[graph.outputs[0]], expected)


def test_zeros_and_filled_tensors_of_float32_are_constants(tmp_path: Path) -> None:
    """The first states of a recurrent layer in a float model."""
    m = ModelWriter()
    x = m.float_input((2, 3))
    zeros = m.node("ZEROS_LIKE", [x], (2, 3), ("ZerosLikeOptions", {}))
    value = m.tensor((), "float32", data=np.array(0.5))
    filled = m.tensor((2, 3), "float32")
    m.operator("FILL", [*_ints(m, [2, 3]), value], [filled], ("FillOptions", {}))
    fused = ("AddOptions", {"FusedActivationFunction": 0})
    m.output(m.node("ADD", [m.node("ADD", [x, zeros], (2, 3), fused), filled], (2, 3), fused))
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    assert [operator.kind for operator in graph.operators] == ["ADD", "ADD"]
    sample = np.array([[1.5, -2, 0], [7, 0.25, -0.5]], np.float32)
    expected = run_reference(path, [[sample]]).outputs[0][0]
    np.testing.assert_array_equal(expected, sample + np.float32(0.5))
    second = graph.tensors[graph.operators[1].inputs[1] or 0]
    assert second.data is not None and (second.data == np.float32(0.5)).all()


def test_numbers_that_are_known(tmp_path: Path) -> None:
    """RANK, RANGE and ZEROS_LIKE: the axes of a transposition, and where a slice begins."""
    m = ModelWriter()
    x = m.input((2, 3, 4), 0.1, 3)
    rank = m.node("RANK", [x], (), ("RankOptions", {}), dtype="int32")
    shape = m.node("SHAPE", [x], (3,), ("ShapeOptions", {"OutType": 2}), dtype="int32")
    last, step = _ints(m, -1, -1)
    fused = ("AddOptions", {"FusedActivationFunction": 0})
    top = m.node("ADD", [rank, last], (), fused)
    order = m.node("RANGE", [top, last, step], (3,), ("RangeOptions", {}))
    y = m.node("TRANSPOSE", [x, order], (4, 3, 2), ("TransposeOptions", {}))
    begin = m.node("ZEROS_LIKE", [shape], (3,), ("ZerosLikeOptions", {}))
    y = m.node("SLICE", [y, begin, *_ints(m, [2, 3, 1])], (2, 3, 1), ("SliceOptions", {}))
    m.output(y)
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    assert [operator.kind for operator in graph.operators] == ["TRANSPOSE", "SLICE"]
    inputs = sample_inputs(m)
    expected = run_reference(path, [inputs]).outputs[0][0]
    np.testing.assert_array_equal(run_graph(graph, inputs)[graph.outputs[0]], expected)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 2**40, 1), r"RANGE.*computes the shape \(1099511627776,\), but the file says"),
        ((0, 4, 0), "its step is 0"),
        ((-(2**63), 2**63 - 1, 1), "RANGE.*computes the shape"),
    ],
)
def test_ranges_that_are_none(numbers: tuple[int, ...], words: str, tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4), 0.1, 3)
    ends = [m.constant(np.array(number, np.int64)) for number in numbers]
    target = m.node("RANGE", ends, (2,), ("RangeOptions", {}))
    out = m.tensor((1, 4), "int8", 0.1, 3)
    m.operator("RESHAPE", [x, target], [out], ("ReshapeOptions", {"NewShape": [1, 4]}))
    m.output(out)
    with pytest.raises(ModelError, match=words):
        load_model(m.save(tmp_path / "model.tflite"))


def test_a_fill_that_contradicts_the_file(tmp_path: Path) -> None:
    m = ModelWriter()
    _first_state(m)
    fill = next(op for op in m.operators if op.kind == "FILL")
    m.tensors[fill.inputs[1]].scales = (0.5,)
    with pytest.raises(ModelError, match=r"FILL.*its value .* is none of"):
        load_model(m.save(tmp_path / "model.tflite"))
