"""The children that tests fork tell the same as those that users start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter
from onnx_writer import OnnxWriter

from utvm_deploy.base import process
from utvm_deploy.base.errors import VerifyError
from utvm_deploy.oracle import origin
from utvm_deploy.oracle.origin import run_origin
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.datasets.load import dataset_of_arrays
from utvm_deploy.quality.quantizing import child_steps
from utvm_deploy.quality.quantizing.child_steps import ONNX, TFLITE, TORCH, calibrate, prepare

pytestmark = [pytest.mark.tools, pytest.mark.filterwarnings("ignore")]

SAMPLES = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


def of_tflite(folder: Path) -> Any:
    """What its child observes in a model."""
    writer = FloatWriter()
    writer.output(writer.relu(writer.input((1, 8), name="x")))
    data = writer.save(folder / "model.tflite").read_bytes()
    inputs = (ModelInput("x", (1, 8), "float32"),)
    told: list[tuple[str, int, int]] = []
    samples = dataset_of_arrays({"inputs": SAMPLES}, inputs)
    found = calibrate(TFLITE, data, samples, inputs, progress=lambda *one: told.append(one))
    return found.model, found.ranges, [one.tolist() for one in found.outputs], told[-1]


def of_onnx(folder: Path) -> Any:
    """What its child prepares."""
    writer = OnnxWriter((1, 8))
    return prepare(ONNX, writer.save(folder / "net.onnx", writer.add("Relu", "x")).read_bytes())


def of_torch(folder: Path) -> Any:
    """What its child prepares."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchao")
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(1, 8),)), path)
    return prepare(TORCH, path.read_bytes(), is_converted=True)


@pytest.mark.parametrize("ask", [of_tflite, of_onnx, of_torch])
def test_a_forked_child_is_a_started_one(
    ask: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert child_steps.process is not process
    forked = ask(tmp_path)
    monkeypatch.setattr(child_steps, "process", process)
    assert ask(tmp_path) == forked


def test_the_runtime_of_a_file_is_forked_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = OnnxWriter((1, 8))
    path = writer.save(tmp_path / "net.onnx", writer.add("Relu", "x"))
    _, forked = run_origin(path, [[SAMPLES[:1]]], 1)
    monkeypatch.setattr(origin, "process", process)
    _, started = run_origin(path, [[SAMPLES[:1]]], 1)
    np.testing.assert_array_equal(forked[0][0], started[0][0])


def test_samples_that_a_runtime_refuses_are_told_with_what_to_do(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 8))
    places = writer.add("Cast", "x", to=7)
    table = writer.constant(np.zeros((4, 2), np.float32))
    path = writer.save(tmp_path / "net.onnx", writer.add("Gather", table, places))
    with pytest.raises(VerifyError, match=r"cannot run net\.onnx: .*; if the values .* --golden G"):
        run_origin(path, [[np.full((1, 8), 9, np.float32)]], 1)
