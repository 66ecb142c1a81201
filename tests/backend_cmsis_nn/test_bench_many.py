"""utvm bench over several models: one that cannot be compared costs its own row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.api import bench_models
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main
from utvm_deploy.results.comparing.facts import ModelComparison


def no_tflite(folder: Path) -> Path:
    path = folder / "damaged.tflite"
    path.write_bytes(b"not a model")
    return path


def nothing_of_cmsis_nn(folder: Path) -> Path:
    m = ModelWriter()
    m.output(m.relu(m.input((1, 8), 0.05, 0), scale=0.05, zero_point=-128))
    return m.save(folder / "relu_alone.tflite")


def too_large(folder: Path) -> Path:
    m = ModelWriter()
    x = m.input((1, 256, 256, 16), 0.05, 0)
    weights = np.ones((16, 1, 1, 16), np.int8)
    m.output(m.conv2d(x, weights, np.zeros(16, np.int32), weight_scale=0.004, scale=0.1))
    return m.save(folder / "too_large.tflite")


def bench(
    capsys: pytest.CaptureFixture[str], *argv: str | Path, code: int = 1
) -> tuple[dict[str, Any], str]:
    assert main(["bench", *map(str, argv), "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_a_bad_model_costs_its_own_row(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = [no_tflite(tmp_path), nothing_of_cmsis_nn(tmp_path), tmp_path / "absent.tflite"]
    page = tmp_path / "page.html"
    checked: list[bool] = []
    measure = bench_models.Comparing.measure

    def spied(work: bench_models.Comparing, connect: Any) -> None:
        checked.append(len(work.failed) == 3 and not work.found)
        measure(work, connect)

    monkeypatch.setattr(bench_models.Comparing, "measure", spied)
    where = ["--board", "host", "--cmsis-nn", fake_library(), "--html", page]
    result, said = bench(capsys, bad[0], small_model, *bad[1:], *where)
    # All are checked before the first one runs.
    assert checked == [True]
    assert [model["name"] for model in result["models"]] == ["small"]
    assert result["models"][0]["ratio"] > 0
    assert [one["file"] for one in result["failed"]] == [str(path) for path in bad]
    reasons = [one["error"] for one in result["failed"]]
    assert "CMSIS-NN has no function for any layer of relu_alone.tflite" in reasons
    text = page.read_text()
    for one in result["failed"]:
        assert f"NOT COMPARED: {one['file']}: {one['error']}" in said
        assert one["name"] in text
    assert "<svg" in text and "Not compared" in text


def test_a_model_that_does_not_fit_the_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = str(data_dir("models") / "digits.tflite")
    large = too_large(tmp_path)
    assert main(["bench", str(large), digits, "--board", "mps2_an500", "--dry-run"]) == 1
    captured = capsys.readouterr()
    assert "too_large.tflite is not compared: " in captured.err and "RAM" in captured.err
    # The other's image is gone through all the same.
    assert "qemu-system-arm" in captured.out


def test_a_crash_in_one_model_leaves_the_others(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The stand-in's convolutions fault; a dense layer alone does not call them."""
    m = ModelWriter()
    weights = np.arange(-30, 30, dtype=np.int8).reshape(5, 12)
    x = m.input((1, 12), 0.05, 3)
    m.output(m.fully_connected(x, weights, np.zeros(5, np.int32), weight_scale=0.004))
    dense = m.save(tmp_path / "dense.tflite")
    where = ["--board", "host", "--cmsis-nn", fake_library("FAKE_CRASH=1")]
    result, _ = bench(capsys, small_model, dense, *where)
    assert [model["name"] for model in result["models"]] == ["dense"]
    (failed,) = result["failed"]
    assert failed["name"] == "small" and failed["kind"] == "DeviceFault"


def test_a_bug_in_one_model_keeps_its_traceback_and_the_others_results(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(small_model.read_bytes())
    compare = bench_models.compare_builds

    def broken(device: Any, ours: Any, *rest: Any) -> ModelComparison:
        if ours.name == "small":
            raise ZeroDivisionError("made up")
        return compare(device, ours, *rest)

    monkeypatch.setattr(bench_models, "compare_builds", broken)
    where = ["--board", "host", "--cmsis-nn", fake_library()]
    result, said = bench(capsys, small_model, other, *where)
    assert [model["name"] for model in result["models"]] == ["other"]
    assert result["failed"][0]["kind"] == "ZeroDivisionError"
    assert "Traceback" in said and "made up" in said


def test_all_are_bad(
    fake_library: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    bad = (no_tflite(tmp_path), nothing_of_cmsis_nn(tmp_path))
    where = ["--board", "host", "--cmsis-nn", fake_library(), "--html", page, "--max-ram", "1K"]
    result, _ = bench(capsys, *bad, *where)
    assert result["models"] == [] and len(result["failed"]) == 2
    assert "relu_alone" in page.read_text()


def test_one_model_alone_says_its_error_as_ever(
    fake_library: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--board", "host", "--cmsis-nn", fake_library()]
    result, _ = bench(capsys, nothing_of_cmsis_nn(tmp_path), *where)
    assert result["schema"] == "utvm.error/1"
    assert result["error"] == "CMSIS-NN has no function for any layer of relu_alone.tflite"


def test_a_baseline_that_lacks_a_model_is_told_before_anything_runs(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ["--board", "host", "--cmsis-nn", fake_library()]
    result, _ = bench(capsys, small_model, *where, code=0)
    baseline = tmp_path / "prev.json"
    baseline.write_text(json.dumps(result))
    other = tmp_path / "other.tflite"
    other.write_bytes(small_model.read_bytes())
    monkeypatch.setattr(bench_models.Comparing, "check", None)
    result, _ = bench(capsys, small_model, other, *where, "--baseline", baseline)
    assert "the baseline holds no model 'other' (it has small)" in result["error"]


def test_the_other_engine_also_computes_the_channels_that_ours_drops(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    m = ModelWriter()
    x = m.input((1, 6, 6, 4), 0.05, 0)
    weights = np.ones((8, 3, 3, 4), np.int8)
    weights[4:] = 0  # four channels are constant
    x = m.conv2d(x, weights, np.zeros(8, np.int32), weight_scale=0.004, scale=0.1)
    last = np.ones((4, 3, 3, 8), np.int8)
    bias = np.zeros(4, np.int32)
    m.output(m.conv2d(x, last, bias, weight_scale=0.004, scale=0.1, padding="VALID"))
    dead = m.save(tmp_path / "dead.tflite")
    where = ["--board", "host", "--cmsis-nn", fake_library()]
    result, told = bench(capsys, dead, small_model, *where, code=0)
    pruned, whole = result["models"]
    assert pruned["layers"][0]["macs"] == 4 * 36 * 36  # 4 channels are left
    figure = pruned["figures"][0]
    theirs = pruned["in_file"]["theirs"][figure]
    assert pruned["end_to_end_ratio"] == pytest.approx(theirs / pruned["ours"][figure])
    assert whole["in_file"] is None and whole["end_to_end_ratio"] == whole["ratio"]
    kernels, channels = pruned["ratio"], theirs / pruned["theirs"][figure]
    assert f"of {figure}, {kernels:.2f} by kernels and {channels:.2f} by channels" in told
