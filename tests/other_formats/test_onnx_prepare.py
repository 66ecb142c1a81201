"""Float ONNX models made ready for a quantizer compute what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_writer import OnnxWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.onnx.prepare import prepared
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of

_STEPS, _INPUTS, _UNITS = 4, 5, 3
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _run(model: Any, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    made: list[np.ndarray] = session.run(None, {"x": x})
    return made


def _same(model: Any, shape: tuple[int, ...]) -> Any:
    """Check that the prepared model computes the same; the model."""
    changed = prepared(onnx, model)
    x = np.random.default_rng(3).normal(0, 1, shape).astype(np.float32)
    for wanted, made in zip(_run(model, x), _run(changed, x), strict=True):
        assert made.shape == wanted.shape
        np.testing.assert_allclose(made, wanted, atol=1e-5)
    return changed


@pytest.mark.parametrize(
    ("kind", "direction", "attributes"),
    [
        ("LSTM", "forward", {}),
        ("LSTM", "bidirectional", {}),
        ("GRU", "reverse", {"linear_before_reset": 1}),
        ("GRU", "bidirectional", {}),
        ("RNN", "forward", {}),
    ],
)
def test_recurrent_layers_are_unrolled(
    tmp_path: Path, kind: str, direction: str, attributes: dict[str, Any]
) -> None:
    ways, gates = 2 if direction == "bidirectional" else 1, _GATES[kind]
    writer = OnnxWriter((_STEPS, 1, _INPUTS))
    states = [writer.normal(ways, 1, _UNITS) for _ in range(2 if kind == "LSTM" else 1)]
    made = writer.add(
        kind,
        "x",
        writer.normal(ways, gates * _UNITS, _INPUTS),
        writer.normal(ways, gates * _UNITS, _UNITS),
        writer.normal(ways, 2 * gates * _UNITS),
        "",
        *states,
        outputs=3 if kind == "LSTM" else 2,
        hidden_size=_UNITS,
        direction=direction,
        **attributes,
    )
    model = onnx.load(writer.save(tmp_path / "model.onnx", *made))
    changed = _same(model, (_STEPS, 1, _INPUTS))
    assert not {kind} & {node.op_type for node in changed.graph.node}


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LayerNormalization", {}),
        ("LayerNormalization", {"axis": 1, "epsilon": 0.1}),
        ("RMSNormalization", {"axis": -1}),
        ("InstanceNormalization", {"epsilon": 0.1}),
    ],
)
def test_normalizations_are_taken_apart(
    tmp_path: Path, kind: str, attributes: dict[str, Any]
) -> None:
    writer = OnnxWriter((1, 4, 6))
    shape = (4,) if kind.startswith("Inst") else (4, 6) if attributes.get("axis") == 1 else (6,)
    parameters = [writer.normal(*shape) for _ in range(1 if kind.startswith("RMS") else 2)]
    model = onnx.load(
        writer.save(tmp_path / "model.onnx", writer.add(kind, "x", *parameters, **attributes))
    )
    if kind.startswith("RMS"):
        model.opset_import[0].version = 23
    changed = _same(model, (1, 4, 6))
    assert not any("Normalization" in node.op_type for node in changed.graph.node)


def test_divisions_by_roots_become_products(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 4, 6))
    y = writer.add("Div", "x", writer.add("Sqrt", writer.add("Exp", "x")))
    changed = _same(onnx.load(writer.save(tmp_path / "model.onnx", y)), (1, 4, 6))
    assert [node.op_type for node in changed.graph.node] == ["Exp", "Sqrt", "Reciprocal", "Mul"]


@pytest.mark.parametrize("order", range(3))
def test_gelu_is_one_operator(tmp_path: Path, order: int) -> None:
    writer = OnnxWriter((1, 24))
    x = writer.add("Relu", writer.add("Gemm", "x", writer.normal(24, 10)))
    half, one = writer.constant(np.float32(0.5)), writer.constant(np.float32(1))
    root = writer.constant(np.float32(2**0.5))
    share = writer.add("Add", writer.add("Erf", writer.add("Div", x, root)), one)
    if order == 0:
        y = writer.add("Mul", writer.add("Mul", x, share), half)
    elif order == 1:
        y = writer.add("Mul", writer.add("Mul", x, half), share)
    else:
        y = writer.add("Mul", x, writer.add("Mul", share, half))
    model = onnx.load(writer.save(tmp_path / "model.onnx", y))
    changed = _same(model, (1, 24))
    assert [node.op_type for node in changed.graph.node] == ["Gemm", "Relu", "Gelu"]


def test_other_products_with_erf_stay(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 24))
    one = writer.constant(np.float32(1))
    share = writer.add("Add", writer.add("Erf", writer.add("Div", "x", one)), one)
    y = writer.add("Mul", writer.add("Mul", "x", share), writer.constant(np.float32(0.5)))
    changed = _same(onnx.load(writer.save(tmp_path / "model.onnx", y)), (1, 24))
    assert "Erf" in [node.op_type for node in changed.graph.node]


def test_what_cannot_be_unrolled_is_named(tmp_path: Path) -> None:
    writer = OnnxWriter(("steps", 1, _INPUTS))
    weights = [writer.normal(1, _UNITS, n) for n in (_INPUTS, _UNITS)]
    y = writer.add("RNN", "x", *weights, hidden_size=_UNITS)
    model = onnx.load(writer.save(tmp_path / "model.onnx", y))
    with pytest.raises(ModelError, match=r"RNN .* has no fixed shape"):
        prepared(onnx, model)


@pytest.mark.parametrize("length", [_STEPS, _STEPS - 1])
def test_sequences_that_end_before_the_last_step_are_refused(tmp_path: Path, length: int) -> None:
    writer = OnnxWriter((_STEPS, 1, _INPUTS))
    weights = [writer.normal(1, 3 * _UNITS, n) for n in (_INPUTS, _UNITS)]
    lengths = writer.constant(np.array([length], np.int32))
    y = writer.add("GRU", "x", *weights, "", lengths, hidden_size=_UNITS)
    model = onnx.load(writer.save(tmp_path / "model.onnx", y))
    if length == _STEPS:
        _same(model, (_STEPS, 1, _INPUTS))
        return
    with pytest.raises(ModelError, match=r"GRU .* has sequence_lens that are not all 4"):
        prepared(onnx, model)


def test_a_recurrent_layer_that_a_quantizer_left_float_is_unrolled(tmp_path: Path) -> None:
    writer = OnnxWriter((1, _STEPS, _INPUTS))
    turned = writer.add("Transpose", "x", perm=[1, 0, 2])
    weights = [writer.normal(1, 3 * _UNITS, n) for n in (_INPUTS, _UNITS)]
    states = writer.add("GRU", turned, *weights, hidden_size=_UNITS)
    flat = writer.add("Reshape", states, writer.constant(np.array([1, _STEPS * _UNITS])))
    path = writer.quantized(
        tmp_path, writer.add("Gemm", flat, writer.normal(_STEPS * _UNITS, 4), writer.normal(4))
    )
    x = np.random.default_rng(3).normal(0, 1, (8, 1, _STEPS, _INPUTS)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    wanted = np.stack([session.run(None, {"x": one})[0] for one in x])
    (made,) = outputs_of(onnx_to_model(path), [x])
    step = np.diff(np.unique(wanted)).min()
    np.testing.assert_allclose(made, wanted, atol=1.01 * step)
