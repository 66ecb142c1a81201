"""Old versions of ONNX's operators, and recurrent layers as PyTorch exports them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_writer import OnnxWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.onnx.prepare import prepared
from utvm_deploy.frontend.onnx.versions import with_places_of_resizes, with_version
from utvm_deploy.frontend.relax.facts import loaded
from utvm_deploy.results.inspecting.quantizable import onnx_types

_STEPS, _INPUTS, _UNITS = 3, 5, 4
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _run(model: Any, x: np.ndarray) -> np.ndarray:
    (made,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(made)


def _imported_kinds(path: Path, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The kinds of operators that the import finds; ``shape`` is that of the output."""
    model = onnx.load(path)
    (output,) = model.graph.output
    output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, shape))
    onnx.save(model, path)
    return loaded(onnx_to_model(path)).kinds


def resizing(path: Path, kind: str, opset: int, mode: str) -> Path:
    w = OnnxWriter((1, 2, 5, 4), opset=opset)
    scales = w.constant(np.array([1, 1, 2, 3], np.float32))
    return w.save(path, w.add(kind, w.conv("x", 2, 3, 3, 3), scales, mode=mode))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(("kind", "opset"), [("Resize", 10), ("Upsample", 9)])
def test_old_resizes_read_the_same_places(kind: str, opset: int, mode: str, tmp_path: Path) -> None:
    model = onnx.load(resizing(tmp_path / "old.onnx", kind, opset, mode))
    x = np.random.default_rng(1).normal(size=(1, 2, 5, 4)).astype(np.float32)
    np.testing.assert_allclose(
        _run(with_places_of_resizes(onnx, model), x), _run(model, x), atol=1e-5
    )


def test_a_linear_resize_of_opset_10_is_imported(tmp_path: Path) -> None:
    path = resizing(tmp_path / "old.onnx", "Resize", 10, "linear")
    assert _imported_kinds(path, (1, 3, 6, 6)) == ("Conv", "Resize")


def test_a_version_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    model = onnx.load(resizing(tmp_path / "old.onnx", "Upsample", 7, "nearest"))
    model.graph.node[0].op_type = "Unknown"
    with pytest.raises(ModelError, match=r"from version 7 of its operators to 13 .* export it"):
        with_version(onnx, model)


@pytest.mark.tools
def test_files_without_scales_by_channel_are_quantized(tmp_path: Path) -> None:
    path = resizing(tmp_path / "old.onnx", "Upsample", 9, "nearest")
    samples = np.random.default_rng(1).normal(size=(32, 2, 5, 4)).astype(np.float32)
    made = utvm_deploy.quantize(path, samples)
    assert not made.float_operators
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 20


def recurrent(kind: str, path: Path) -> Path:
    """A layer whose first state is zeros of a batch that is computed from the input's shape."""
    w = OnnxWriter(("batch", _STEPS, _INPUTS))
    turned = w.add("Transpose", "x", perm=[1, 0, 2])
    batch = w.add(
        "Unsqueeze",
        w.add("Gather", w.add("Shape", "x"), w.constant(np.array(0)), axis=0),
        w.constant(np.array([0])),
    )
    one, units = (w.constant(np.array([size])) for size in (1, _UNITS))
    shape = w.add("Concat", one, batch, units, axis=0)
    states = [w.add("ConstantOfShape", shape)]
    if kind == "LSTM":
        states.append(w.add("Expand", w.constant(np.zeros((1, 1, 1), np.float32)), shape))
    weights = [w.normal(1, _GATES[kind] * _UNITS, size) for size in (_INPUTS, _UNITS)]
    bias = w.normal(1, 2 * _GATES[kind] * _UNITS)
    made = w.add(kind, turned, *weights, bias, "", *states, outputs=2, hidden_size=_UNITS)
    return w.save(path, w.add("Relu", made[1]))


@pytest.mark.parametrize("kind", _GATES)
def test_first_states_may_be_computed(kind: str, tmp_path: Path) -> None:
    model = onnx.load(recurrent(kind, tmp_path / "net.onnx"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    x = np.random.default_rng(1).normal(size=(1, _STEPS, _INPUTS)).astype(np.float32)
    made = prepared(onnx, model)
    assert not {kind, "ConstantOfShape"} & {node.op_type for node in made.graph.node}
    np.testing.assert_allclose(_run(made, x), _run(model, x), atol=1e-5)


def test_a_recurrent_layer_is_imported_in_float(tmp_path: Path) -> None:
    path = recurrent("LSTM", tmp_path / "net.onnx")
    assert _imported_kinds(path, (1, 1, _UNITS)) == ("Transpose", "LSTM", "Relu")
    assert onnx_types("LSTM") == ("int8", "int16")
