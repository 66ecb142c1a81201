"""Weights that are equalized across layers compute the same in float32."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.tflite import equalize
from utvm_deploy.quality.quantizing.tflite.calibrate import float_values, outputs_of

pytestmark = pytest.mark.tools

MODELS = Path(__file__).resolve().parents[2] / "models"
DIGITS, SAMPLES = MODELS / "digits_float.tflite", MODELS / "digits_calib.npz"


def equalized(data: bytes, inputs: list[np.ndarray]) -> tuple[bytes, int]:
    return equalize.equalized(data, lambda: float_values(data, inputs))


def test_digits_compute_the_same() -> None:
    data, inputs = DIGITS.read_bytes(), [np.load(SAMPLES)["inputs"][:8]]
    made, layers = equalized(data, inputs)
    assert layers >= 1 and made != data
    for before, behind in zip(outputs_of(data, inputs), outputs_of(made, inputs), strict=True):
        np.testing.assert_allclose(before, behind, rtol=1e-5, atol=1e-6)
    # What is equal already stays.
    assert equalized(made, inputs)[1] <= layers


def test_uneven_channels_quantize_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A layer whose channels differ by a factor of a thousand, which the next layer evens out."""
    rng = np.random.default_rng(5)
    uneven = np.exp2(rng.integers(-6, 5, 16)).astype(np.float32)
    w = FloatWriter()
    x = w.input((1, 8))
    first = rng.normal(0, 1, (16, 8)).astype(np.float32) * uneven[:, None]
    second = rng.normal(0, 1, (4, 16)).astype(np.float32) / uneven
    bias = rng.normal(0, 0.1, 16).astype(np.float32) * uneven
    hidden = w.fully_connected(x, first, bias, activation="RELU")
    w.output(w.fully_connected(hidden, second, np.zeros(4, np.float32)))
    path = tmp_path / "uneven.tflite"
    path.write_bytes(w.to_bytes())
    data = tmp_path / "data.npy"
    np.save(data, rng.normal(0, 1, (64, 8)).astype(np.float32))
    target = str(tmp_path / "out.tflite")
    words = ["quantize", str(path), "--data", str(data), "-o", target, "--json"]
    assert main([*words, "--equalize", "yes"]) == 0
    before, behind = json.loads(capsys.readouterr().out)["equalizing"]
    assert behind > before + 6


def test_a_constant_output_is_not_said_to_have_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    w = FloatWriter()
    hidden = w.fully_connected(
        w.input((1, 8)), np.ones((4, 8), np.float32), np.zeros(4, np.float32)
    )
    w.output(w.fully_connected(hidden, np.zeros((2, 4), np.float32), np.ones(2, np.float32)))
    path, data = w.save(tmp_path / "constant.tflite"), tmp_path / "data.npy"
    np.save(data, np.random.default_rng(1).normal(0, 1, (8, 8)).astype(np.float32))
    words = ["quantize", str(path), "--data", str(data), "-o", str(tmp_path / "out.tflite")]
    assert main([*words, "--clipping", "auto"]) == 0
    said = capsys.readouterr().out
    assert "min-max none: equal or constant outputs, percentile" in said
    assert "no error" not in said


def test_a_bias_of_two_layers_stays() -> None:
    rng = np.random.default_rng(3)
    w = FloatWriter()
    x = w.input((1, 4))
    uneven = np.exp2(np.arange(4) * 2).astype(np.float32)[:, None]
    first = rng.normal(0, 1, (4, 4)).astype(np.float32) * uneven
    second = rng.normal(0, 1, (4, 4)).astype(np.float32)
    bias = np.arange(1, 5, dtype=np.float32)
    hidden = w.fully_connected(x, first, bias, activation="RELU")
    w.output(w.fully_connected(hidden, second, bias))
    model = schema.read_model(w.to_bytes())
    layers = model.subgraphs[0].operators
    layers[1].inputs[2] = layers[0].inputs[2]
    data = schema.model_bytes(model)
    inputs = [rng.normal(0, 1, (8, 1, 4)).astype(np.float32)]
    made, _ = equalized(data, inputs)
    for before, behind in zip(outputs_of(data, inputs), outputs_of(made, inputs), strict=True):
        np.testing.assert_array_equal(before, behind)
