"""The trained networks of models/: what each form of them answers to the held-out data."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

MODELS = Path(__file__).resolve().parents[2] / "models"
FORMS = ("float", "int8", "int16x8")
#: Signal to quantization noise of the outputs, at least.
LEAST_DB = {"int8": 20.0, "int16x8": 35.0}


@pytest.fixture(scope="module", params=["digits", "diabetes"])
def answers(request: pytest.FixtureRequest) -> tuple[str, dict[str, np.ndarray]]:
    """The name of a network, and the real outputs of each form for the held-out inputs."""
    name: str = request.param
    inputs = np.load(MODELS / f"{name}_labelled.npz")["inputs"]
    return name, {form: _real_outputs(f"{name}_{form}.tflite", inputs) for form in FORMS}


def _real_outputs(file: str, inputs: np.ndarray) -> np.ndarray:
    graph = load_model(MODELS / file)
    source, sink = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    if source.quantization is not None:
        limits = np.iinfo(source.dtype)
        scale, zero = source.quantization.scales[0], source.quantization.zero_points[0]
        steps = np.round(inputs / np.float32(scale)) + zero
        inputs = np.clip(steps, limits.min, limits.max).astype(source.dtype)
    run = run_reference(MODELS / file, [sample[np.newaxis] for sample in inputs])
    found = np.concatenate([outputs[0] for outputs in run.outputs]).astype(np.float64)
    if sink.quantization is None:
        return found
    return (found - sink.quantization.zero_points[0]) * sink.quantization.scales[0]


@pytest.mark.tools
def test_quantizing_costs_little(answers: tuple[str, dict[str, np.ndarray]]) -> None:
    name, outputs = answers
    exact = outputs["float"]
    for form, least in LEAST_DB.items():
        noise = np.sum((outputs[form] - exact) ** 2)
        assert 10 * np.log10(np.sum(exact**2) / noise) >= least, form
    data = np.load(MODELS / f"{name}_labelled.npz")
    if name == "digits":
        right = {f: (o.argmax(-1) == data["labels"]).mean() for f, o in outputs.items()}
        assert right["float"] == 357 / 360
        assert right["int8"] >= right["float"] - 0.01
        assert right["int16x8"] >= right["float"] - 0.003
    else:
        targets = data["targets"]
        spread = np.sum((targets - targets.mean()) ** 2)
        r2 = {form: 1 - np.sum((o - targets) ** 2) / spread for form, o in outputs.items()}
        assert r2["float"] == pytest.approx(0.5526, abs=1e-4)
        assert r2["int8"] >= r2["float"] - 0.01
        assert r2["int16x8"] >= r2["float"] - 0.003


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_calibration_has_no_held_out_sample(name: str) -> None:
    seen = {sample.tobytes() for sample in np.load(MODELS / f"{name}_calib.npz")["inputs"]}
    held_out = {sample.tobytes() for sample in np.load(MODELS / f"{name}_labelled.npz")["inputs"]}
    assert len(seen) == 200 and not seen & held_out


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_files_have_the_types_of_their_names(name: str) -> None:
    for form, dtype in (("float", "float32"), ("int8", "int8"), ("int16x8", "int16")):
        graph = load_model(MODELS / f"{name}_{form}.tflite")
        ends = [graph.tensors[i] for i in (*graph.inputs, *graph.outputs)]
        assert [end.dtype for end in ends] == [dtype, dtype]


def test_readme_has_the_digests() -> None:
    lines = (MODELS / "README.md").read_text(encoding="utf-8").splitlines()
    told = dict(
        line.split()[::-1] for line in lines if re.fullmatch(r" {4}[0-9a-f]{64}  \S+", line)
    )
    files = [*MODELS.rglob("*.tflite"), *MODELS.rglob("*.npz")]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == told


@pytest.mark.tools
def test_the_gru_is_a_loop_and_recognizes_what_its_page_says() -> None:
    """Unrolled, with tables for each step, it had 82,544 bytes of weights."""
    compiled = utvm_deploy.compile(MODELS / "gru.tflite", "mps2_an500")
    assert [(loop.period, loop.steps) for loop in compiled.loops] == [(11, 7)]
    assert compiled.weights_bytes < 7_000
    labelled = np.load(MODELS / "gru_labelled.npz")
    run = run_reference(MODELS / "gru.tflite", [[one[np.newaxis]] for one in labelled["inputs"]])
    right = sum(
        int(outputs[0].argmax() == label)
        for outputs, label in zip(run.outputs, labelled["labels"], strict=True)
    )
    assert right == 482
    assert f"recognize {right} of the 500" in (MODELS / "README.md").read_text("utf-8")
