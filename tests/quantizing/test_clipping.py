"""Ranges that cut off outliers, and recurrent layers of ONNX files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter
from other_formats.onnx_writer import OnnxWriter

from utvm_deploy.base.progress import no_progress
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.quality.quantizing.choosing import Score, clearly_better
from utvm_deploy.quality.quantizing.clipping import Clipper
from utvm_deploy.quality.quantizing.facts import (
    CLIPPINGS,
    INT8,
    MIN_MAX,
    MSE,
    PERCENTILE,
    Range,
    Recipe,
)
from utvm_deploy.quality.quantizing.model_steps import _Trial, quantize_model

MODELS = Path(__file__).resolve().parents[2] / "models"


def _ranges(values: np.ndarray, method: str) -> Range:
    observed = {"x": Range(float(values.min()), float(values.max()))}
    return Clipper(lambda: [("x", values)], observed).ranges(method)["x"]


def test_an_outlier_is_cut_off() -> None:
    values = np.random.default_rng(16).normal(0, 1, 100_000).astype(np.float32)
    values[7] = 100.0
    assert _ranges(values, MIN_MAX).high == 100.0
    for method in (PERCENTILE, MSE):
        one = _ranges(values, method)
        assert values.min() <= one.low < -2.5 and 2.5 < one.high < 90


@pytest.mark.parametrize("method", [PERCENTILE, MSE])
@pytest.mark.parametrize("ends", [(0.0, 6.0), (-3.0, 0.0), (2.0, 3.0), (-3.0, -2.0)])
def test_ranges_hold_zero_and_what_was_seen(method: str, ends: tuple[float, float]) -> None:
    values = np.linspace(*ends, 10_000)
    one = _ranges(values, method)
    assert min(ends[0], 0.0) <= one.low <= 0.0 <= one.high <= max(ends[1], 0.0)
    assert one.high - one.low > 0.9 * (max(ends[1], 0.0) - min(ends[0], 0.0))


def _better(*sizes: float | None, halves: tuple[tuple[float, float], ...] = ()) -> list[str]:
    """The clippings that are clearly better than the first, by the SQNR of each in dB."""
    parts = halves or [()] * 3
    scores = [Score(*one) for one in zip(sizes, parts, strict=True)]
    return clearly_better(dict(zip(CLIPPINGS, scores, strict=True)), MIN_MAX)


def test_the_observed_range_stays_unless_another_is_clearly_better() -> None:
    assert CLIPPINGS == (MIN_MAX, PERCENTILE, MSE)
    assert _better(30.0, 30.3, 30.4) == []
    assert _better(30.0, 31.0, 33.0) == [PERCENTILE, MSE]
    assert _better(None, 90.0, 80.0) == []


def test_what_helps_only_some_of_the_samples_is_not_chosen() -> None:
    halves = ((30.0, 30.0), (31.0, 33.0), (40.0, 29.0))
    assert _better(30.0, 32.0, 36.0, halves=halves) == [PERCENTILE]


@pytest.mark.parametrize(
    ("held_out", "everything", "expected"),
    [
        pytest.param((29.9, 32.8, 32.0), (30.0, 29.1, 31.1), MSE, id="one is worse on all"),
        pytest.param((30.4, 31.7, 31.8), (30.4, 31.9, 31.0), MSE, id="held-out samples decide"),
        pytest.param((35.8, 37.1, 37.0), (33.9, 35.3, 35.2), PERCENTILE, id="both agree"),
        pytest.param((30.0, 31.0, 31.1), (30.0, 29.0, 29.9), MIN_MAX, id="all are worse on all"),
    ],
)
def test_all_samples_leave_ways_out_and_the_held_out_ones_choose(
    held_out: tuple[float, ...],
    everything: tuple[float, ...],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = SimpleNamespace(sizes=everything)
    apart = SimpleNamespace(sizes=held_out, held_out=64, of_all_samples=lambda: every)

    def scores(trial: Any, calibration: Any, recipes: Sequence[Recipe]) -> list[Score]:
        sizes = dict(zip(CLIPPINGS, calibration.sizes, strict=True))
        return [Score(sizes[one.clipping]) for one in recipes]

    monkeypatch.setattr(_Trial, "_scores", scores)
    trial = _Trial(apart, Recipe(INT8), False, no_progress)  # type: ignore[arg-type]
    trial.clip()
    assert trial.recipe.clipping == expected


@pytest.mark.tools
def test_values_that_the_held_out_samples_lack_count_too(tmp_path: Path) -> None:
    w = FloatWriter()
    x = w.input((1, 256))
    w.output(w.fully_connected(x, np.eye(256, dtype=np.float32), np.zeros(256, np.float32)))
    data = np.random.default_rng(4).uniform(-1, 1, (80, 256)).astype(np.float32)
    data[50, 7] = 50.0
    made = quantize_model(w.save(tmp_path / "model.tflite"), data, clipping="auto")
    least, percentile = made.clippings[MIN_MAX], made.clippings[PERCENTILE]
    assert least is not None and percentile is not None and percentile > least + 10
    assert made.clipping != PERCENTILE


@pytest.mark.tools
def test_samples_that_are_held_out_do_not_say_the_ranges_of_what_they_judge(tmp_path: Path) -> None:
    """Only the first quarter has large values: those beyond the others' range are cut off."""
    w = FloatWriter()
    x = w.input((1, 8))
    w.output(w.fully_connected(x, np.eye(8, dtype=np.float32), np.zeros(8, np.float32)))
    data = np.random.default_rng(4).uniform(-1, 1, (80, 8)).astype(np.float32)
    data[:20] *= 4
    made = quantize_model(w.save(tmp_path / "model.tflite"), data, clipping=MIN_MAX)
    assert made.compared_samples == made.calibration.held_out == 20
    (error,) = made.outputs
    assert error.sqnr_db is not None and error.sqnr_db < 10 and error.largest > 2
    # The file itself is made of all samples.
    graph = load_bytes(made.data, "model")
    known = graph.tensors[graph.inputs[0]].quantization
    assert known is not None and known.scale * 255 > 7


@pytest.mark.tools
def test_all_clippings_are_tried_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(MODELS / "diabetes_float.tflite"), "--data", str(MODELS / "diabetes_calib.npz")]
    target = str(tmp_path / "out.tflite")
    assert main(["quantize", *words, "--clipping", "auto", "-o", target, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["clippings"]) == {MIN_MAX, PERCENTILE, MSE}
    assert facts["clipping"] in facts["clippings"]
    assert facts["outputs"][0]["sqnr_db"] > 20


@pytest.mark.tools
def test_recurrent_layers_of_onnx_files_become_integers(tmp_path: Path) -> None:
    writer = OnnxWriter((4, 1, 6))
    weights = [writer.normal(1, 15, 6), writer.normal(1, 15, 5), writer.normal(1, 30)]
    made = writer.add("GRU", "x", *weights, hidden_size=5, linear_before_reset=1, outputs=2)
    path = writer.save(tmp_path / "gru.onnx", made[0])
    data = np.random.default_rng(3).normal(0, 1, (40, 4, 1, 6)).astype(np.float32)
    found = quantize_model(path, data)
    assert not found.float_operators
    (error,) = found.outputs
    assert error.sqnr_db is not None and error.sqnr_db > 20
