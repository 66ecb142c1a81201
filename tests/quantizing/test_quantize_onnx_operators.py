"""Operators of float ONNX files that onnxruntime leaves float, or quantizes wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from other_formats.onnx_writer import OnnxWriter

import utvm_deploy
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.quantizing.facts import LEAST_SQNR_DB as LEAST_DB
from utvm_deploy.quality.quantizing.facts import QuantizedModel

pytestmark = pytest.mark.tools

SAMPLES = np.random.default_rng(3).normal(size=(40, 3, 8, 8)).astype(np.float32)


def made_of(w: OnnxWriter, y: str, folder: Path, scheme: str = "int8") -> QuantizedModel:
    """The quantized model, whose bytes the host board computes, too."""
    source = w.save(folder / "float.onnx", y)
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(source)), source)
    made = utvm_deploy.quantize(source, SAMPLES, scheme=scheme)
    made.save(folder / "net.tflite")
    argv = ["verify", str(folder / "net.tflite"), "--board", "host", "--samples", "2"]
    assert main(argv) == 0
    return made


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_layers_become_int16(kind: str, tmp_path: Path) -> None:
    """Their first state is zero, and so is what the first step makes of it."""
    w, gates = OnnxWriter((1, 3, 8, 8), seed=4), {"GRU": 3, "LSTM": 4}[kind]
    steps = w.add("Reshape", "x", w.constant(np.array([6, 1, 32])))
    weights = w.normal(1, gates * 4, 32), w.normal(1, gates * 4, 4), w.normal(1, gates * 8)
    made = made_of(w, w.add(kind, steps, *weights, hidden_size=4), tmp_path, "int16x8")
    assert not made.float_operators
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int16x8"]


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_norms_and_activations_have_no_float_step(scheme: str, tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.add("Reshape", "x", w.constant(np.array([1, 12, 16])))
    y = w.add("LayerNormalization", y, w.normal(16, scale=1.0), w.normal(16))
    y = w.add("MatMul", y, w.normal(16, 16))
    y = w.add("Mul", y, w.add("Sigmoid", y))
    mean = w.add("ReduceMean", w.add("Mul", y, y), axes=[-1])
    variance = w.add("Add", mean, w.constant(np.float32(1e-3)))
    y = w.add("Div", y, w.add("Sqrt", variance))
    y = w.add("Mul", y, w.normal(16, scale=1.0))
    made = made_of(w, w.add("MatMul", y, w.normal(16, 4)), tmp_path, scheme)
    assert not made.float_operators
    least = {"int8": 20, "int16x8": 40}[scheme]
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > least


def test_a_relu_that_is_always_zero_stays_zero(tmp_path: Path) -> None:
    """onnxruntime leaves the Relu out, and the quantization of its output clamps instead."""
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.conv("x", 3, 4, 3, 3)
    dead = w.add("Relu", w.add("Add", w.add("Sigmoid", y), w.constant(np.float32(-3))))
    made = made_of(w, w.add("Add", y, dead), tmp_path)
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int8"]


@pytest.mark.parametrize("limits", [(0.5, 2.0), (-2.0, -0.5)])
def test_a_clip_that_leaves_out_zero_keeps_both_limits(
    limits: tuple[float, float], tmp_path: Path
) -> None:
    """onnxruntime leaves the Clip out, and the quantization of its output begins at zero."""
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.conv("x", 3, 4, 3, 3)
    y = w.add("Clip", y, *(w.constant(np.float32(one)) for one in limits))
    made = made_of(w, w.add("Mul", y, w.conv("x", 3, 4, 3, 3)), tmp_path)
    assert not made.float_operators
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int8"]


def test_a_clip_to_values_that_its_input_never_has_is_quantized(tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.add("Relu", w.add("Abs", w.conv("x", 3, 4, 3, 3)))
    limits = [w.constant(np.float32(one)) for one in (-3, -1.5)]
    made = made_of(w, w.add("Add", w.add("Neg", w.add("Clip", y, *limits)), y), tmp_path)
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int8"]


@pytest.mark.parametrize("scheme", LEAST_DB)
def test_comparisons_are_quantized(scheme: str, tmp_path: Path) -> None:
    """LiteRT compares int16 as it is stored, so both sides need the same scale."""
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.conv("x", 3, 4, 3, 3)
    least = w.add("Greater", y, w.constant(np.float32(0.3)))
    more = w.add("Less", y, w.conv("x", 3, 4, 3, 3))
    y = w.add("Where", more, y, w.add("Where", least, y, w.constant(np.float32(-1))))
    made = made_of(w, w.conv(y, 4, 4, 1, 1), tmp_path, scheme)
    assert not made.float_operators
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 15


def test_what_onnxruntime_leaves_float_is_quantized_by_the_calibrated_ranges(
    tmp_path: Path,
) -> None:
    """With a quantized operator before and behind it, and without any."""
    for has_products in (True, False):
        w = OnnxWriter((1, 3, 8, 8), seed=4)
        y = w.conv("x", 3, 3, 3, 3) if has_products else "x"
        y = w.add("Sub", w.add("Neg", w.add("Abs", y)), w.normal(3, 1, 1))
        y = w.add("Clip", y, w.constant(np.float32(-1.5)), w.constant(np.float32(0.25)))
        y = w.add("Div", w.add("Exp", y), w.constant(np.float32(3)))
        y = w.conv(y, 3, 3, 3, 3) if has_products else y
        made = made_of(w, y, tmp_path)
        assert not made.float_operators
        assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int8"]


@pytest.mark.parametrize("is_one", [True, False])
def test_hard_swish_keeps_its_kernel(is_one: bool, tmp_path: Path) -> None:
    """onnxruntime and some exporters write it as two operators."""
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.conv("x", 3, 4, 3, 3)
    y = w.add("HardSwish", y) if is_one else w.add("Mul", w.add("HardSigmoid", y, alpha=1 / 6), y)
    made = made_of(w, w.conv(y, 4, 4, 3, 3), tmp_path)
    graph = load_model(tmp_path / "net.tflite")
    assert not made.float_operators and "HARD_SWISH" in [one.kind for one in graph.operators]


def test_a_linear_resize_keeps_the_scale_of_its_input(tmp_path: Path) -> None:
    """LiteRT interpolates the stored values. The result's range is smaller than the input's."""
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    sizes = w.constant(np.array([1, 3, 4, 4], np.int64))
    y = w.add("Resize", "x", "", "", sizes, mode="linear")
    made = made_of(w, w.add("GlobalMaxPool", y), tmp_path)
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 30


def test_a_bias_with_a_row_of_its_own_is_quantized(tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.add("MatMul", w.add("Flatten", "x"), w.normal(192, 5))
    made = made_of(w, w.add("Add", y, w.normal(1, 5)), tmp_path)
    assert not made.float_operators


def test_what_is_always_zero_gets_a_scale_that_kernels_take(tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8), seed=4)
    y = w.add("Relu", w.add("Sub", w.add("Sigmoid", "x"), w.constant(np.float32(3))))
    for _ in range(2):
        error = w.add("Erf", w.add("Div", y, w.constant(np.float32(2**0.5))))
        y = w.add("Mul", y, w.add("Add", error, w.constant(np.float32(1))))
        y = w.add("Mul", y, w.constant(np.float32(0.5)))
    y = w.add("Concat", y, w.add("Neg", "x"), axis=1)
    made = made_of(w, y, tmp_path, "int16x8")
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > LEAST_DB["int16x8"]
