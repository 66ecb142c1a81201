"""Weights that are not finite, and calibration data that no scale can hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import DataError, ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.quantizing.facts import Range, too_wide
from utvm_deploy.quality.quantizing.samples import dataset_for

SAMPLES = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


def dense(path: Path, value: float, *, factor: float = 1.0) -> Path:
    m = FloatWriter()
    weights = np.full((3, 4), factor, np.float32)
    weights[1, 2] = value
    operands = [m.input((1, 4), name="x"), m.constant(weights), m.constant(np.zeros(3, np.float32))]
    m.output(m.node("FULLY_CONNECTED", operands, (1, 3), ("FullyConnectedOptions", {})))
    return m.save(path)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_inspect_warns_of_weights(
    value: float, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dense(tmp_path / "net.tflite", value)
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"of operator 0 (FULLY_CONNECTED) holds {what}, and so will the results" in told


def test_an_infinite_mask_causes_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = FloatWriter()
    mask = m.constant(np.full((1, 4), -np.inf, np.float32))
    m.output(m.node("ADD", [m.input((1, 4)), mask], (1, 4), ("AddOptions", {})))
    assert main(["inspect", str(m.save(tmp_path / "net.tflite"))]) == 0
    assert not capsys.readouterr().err


@pytest.mark.tools
def test_quantize_refuses_weights_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = dense(tmp_path / "net.tflite", np.nan), tmp_path / "calib.npz"
    np.savez(data, inputs=SAMPLES)
    made = tmp_path / "out.tflite"
    assert main(["quantize", str(path), "--data", str(data), "-o", str(made)]) == 1
    told = capsys.readouterr().err
    assert "hold NaN; train the model again" in told and "warning" not in told
    assert not made.exists()


def test_data_that_reach_too_far_are_named(tmp_path: Path) -> None:
    path = dense(tmp_path / "net.tflite", 1.0)
    data = SAMPLES.copy()
    data[3, 1], data[5, 1] = 3e38, -3e38
    with pytest.raises(DataError, match=r"input 'x' reach from -3e\+38 to 3e\+38, too far for a "):
        utvm_deploy.quantize(path, data)


@pytest.mark.tools
def test_tensors_that_reach_too_far_are_named(tmp_path: Path) -> None:
    path = dense(tmp_path / "net.tflite", 1.0, factor=1.5e38)
    with pytest.raises(ModelError, match=r"tensor '.*' of the float model reaches from -.* scale"):
        utvm_deploy.quantize(path, np.clip(SAMPLES, -0.5, 0.5))


def test_the_widest_range_with_a_scale() -> None:
    assert not Range(-1.7e38, 1.7e38).is_too_wide
    assert Range(-1.8e38, 1.8e38).is_too_wide
    assert "'x' of the float model reaches from -2e+38" in too_wide("x", Range(-2e38, 2e38))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"x": np.zeros(3)}, r"'x' has the shape \(3,\) in some samples, and \(4,\) in others"),
        ({"y": np.zeros(4)}, "the samples do not have the same names"),
    ],
)
def test_samples_that_are_not_alike(second: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(DataError, match=said):
        dataset_for([{"x": np.zeros(4)}, second], (ModelInput("x", (1, 4), "float32"),))
