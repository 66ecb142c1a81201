"""How far outputs are from those of the runtime that a converted model came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import OF_MODELS
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.origin import difference, gaps


def test_infinities_and_nan_are_compared_without_a_warning() -> None:
    ours = np.array([np.inf, np.nan, 1.0, np.inf, np.nan, 2.0], np.float32)
    theirs = np.array([np.inf, np.nan, 1.5, -np.inf, 0.0, 2.0], np.float32)
    assert gaps(ours, theirs).tolist() == [0.0, 0.0, 0.5, np.inf, np.inf, 0.0]


def float_model(path: Path) -> Path:
    """A dense layer with large values, and the position of its largest output."""
    weights = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32) * 1000
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["first"], axis=1, keepdims=0),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]),
        helper.make_tensor_value_info("first", TensorProto.INT64, [1]),
    ]
    constants = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "dense", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.mark.tools
def test_float32_is_compared_with_a_relative_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = float_model(tmp_path / "dense.onnx")
    graph = load_model(path)
    x = np.ones((1, 6), np.float32)
    weights = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    right = x @ weights

    def found(y: Array, first: int) -> tuple[int, float | None, float | None]:
        one = difference(path, graph, [[x]], [[y.astype(np.float32), np.array([first])]])
        assert one is not None and one.bound == OF_MODELS and one.elements == 5
        return one.different, one.largest_steps, one.largest_relative

    best = int(right.argmax())
    # Whole units of a large output, but less than the bound.
    off = np.float32(0.5e-4 * np.abs(right).max())
    assert off > 0.01
    different, steps, relative = found(right + off, best)
    assert (different, steps) == (0, 0.0) and relative == pytest.approx(0.5e-4, rel=0.01)
    different, steps, relative = found(right + 4 * off, best + 1)
    assert (different, steps) == (5, 1.0) and relative == pytest.approx(2e-4, rel=0.01)
    assert main(["verify", str(path), "--board", "host", "--samples", "2"]) == 0
    said = capsys.readouterr().out
    assert "of TVM 0.27 for this computer (LLVM)" in said
    assert "0 of 10 output elements differ by more than 0.0001 relative" in said
    assert "largest relative difference of float32: " in said and "of the scale" not in said
