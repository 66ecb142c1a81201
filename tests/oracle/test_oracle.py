"""The reference interpreter in its child process: results, refusals, crashes, deadlines."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from small_models import build_model, sample_inputs
from tflite_writer import ModelWriter

from utvm_deploy.base import process
from utvm_deploy.base.errors import FileRefused, VerifyError
from utvm_deploy.oracle import reference
from utvm_deploy.oracle.reference import run_reference


@pytest.fixture(autouse=True)
def forked_oracle() -> None:
    """The oracle is started as users start it."""


def test_every_tensor_of_every_sample(tmp_path: Path) -> None:
    model = build_model("branches")
    samples = [sample_inputs(model, seed) for seed in range(4)]
    run = run_reference(model.save(tmp_path / "model.tflite"), samples)
    assert len(run.outputs) == len(run.tensors) == 4
    for inputs, outputs, tensors in zip(samples, run.outputs, run.tensors, strict=True):
        assert set(tensors) == {0, *(op.outputs[0] for op in model.operators)}
        np.testing.assert_array_equal(tensors[0], inputs[0])
        for number, output in zip(model.outputs, outputs, strict=True):
            assert output.dtype == np.int8 and output.shape == model.tensors[number].shape
            np.testing.assert_array_equal(tensors[number], output)
    assert not np.array_equal(run.outputs[0][1], run.outputs[1][1])


def test_several_inputs_and_no_sample(tmp_path: Path) -> None:
    path = build_model("two_inputs").save(tmp_path / "model.tflite")
    assert run_reference(path, []).outputs == ()
    inputs = [np.zeros((1, 5, 5, 2), np.int8), np.ones((1, 5, 5, 2), np.int8)]
    run = run_reference(path, [inputs])
    np.testing.assert_array_equal(run.tensors[0][1], inputs[1])


def test_single_input_needs_no_list(tmp_path: Path) -> None:
    path = build_model("softmax").save(tmp_path / "model.tflite")
    run = run_reference(path, [np.zeros((1, 10), np.int8)])
    np.testing.assert_array_equal(run.outputs[0][0], np.full((1, 10), 26 - 128))


def test_many_samples_are_fast(tmp_path: Path) -> None:
    model = build_model("branches")
    samples = [sample_inputs(model, seed) for seed in range(300)]
    run = run_reference(model.save(tmp_path / "model.tflite"), samples, timeout_s=20)
    assert len(run.outputs) == 300


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ([[np.zeros((1, 3), np.int8)]], "refuses model.tflite: Cannot set tensor"),
        ([[np.zeros((1, 10), np.float32)]], "refuses model.tflite: Cannot set tensor"),
        ([[np.zeros((1, 10), np.int8)] * 2], "it has 1 inputs, but 2 were given"),
        ([[]], "a sample for model.tflite has no arrays"),
    ],
)
def test_wrong_inputs(inputs: list[list[np.ndarray]], sentence: str, tmp_path: Path) -> None:
    path = build_model("softmax").save(tmp_path / "model.tflite")
    with pytest.raises(VerifyError) as caught:
        run_reference(path, inputs)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_refused_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"not a model")
    with pytest.raises(FileRefused) as caught:
        run_reference(path, [])
    assert str(caught.value) == (
        "LiteRT 2.3.0 refuses model.tflite, so there is nothing to be exact to; repair that, or "
        "convert the model again; LiteRT says: The model is not a valid Flatbuffer buffer"
    )
    assert capfd.readouterr() == ("", "")


def test_samples_that_an_operator_refuses(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(m.node("RSQRT", [m.input((4,), 0.1)], (4,), scale=0.1))
    with pytest.raises(VerifyError, match="give samples that the model takes: --golden"):
        run_reference(m.save(tmp_path / "model.tflite"), [np.full((4,), -3, np.int8)])


def test_model_refused_at_an_operator(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4), 0.1, 0)
    m.output(m.node("SOFTMAX", [x], (1, 4), ("SoftmaxOptions", {"Beta": 1.0}), scale=0.3))
    where = r"model\.tflite at operator 0 \(SOFTMAX\), so there"
    cause = r"; LiteRT says: output->params\.zero_point != -128 \(0 != -128\)$"
    with pytest.raises(FileRefused, match=f"{where}.*{cause}"):
        run_reference(m.save(tmp_path / "model.tflite"), [])


def _as_child(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Another program in the place of the child."""
    run = process.run

    def instead(argv: list[str], **options: object) -> process.Completed:
        return run([sys.executable, "-c", script], **options)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "run", instead)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import os; os.abort()", "crashed with SIGABRT on model.tflite"),
        ("print('why'); raise SystemExit(7)", r"exited with status 7 on model.tflite \(why\)"),
        ("pass", "left no results for model.tflite"),
        ("import time; time.sleep(60)", r"took more than 0.5 s on model.tflite"),
    ],
)
def test_failing_child(
    script: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_child(monkeypatch, script)
    path = tmp_path / "model.tflite"
    path.write_bytes(b"nothing")
    with pytest.raises(VerifyError, match=sentence):
        run_reference(path, [], timeout_s=0.5)


def test_a_larger_model_has_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def run(*_: object, timeout_s: float, **__: object) -> NoReturn:
        given.append(timeout_s)
        raise VerifyError("not run")

    monkeypatch.setattr(process, "run", run)
    # A file that only LiteRT reads has the floor.
    (tmp_path / "foreign.tflite").write_bytes(b"nothing")
    models = Path(__file__).parents[2] / "models"
    for path in (
        tmp_path / "foreign.tflite",
        *(models / f"{name}.tflite" for name in ("digits", "cifar10_cnn")),
    ):
        with pytest.raises(VerifyError, match="not run"):
            run_reference(path, [np.zeros(1, np.int8)] * 2)
    # Two samples of 12.3 million multiply-accumulates, at two million a second.
    assert given[2] == pytest.approx(given[0] + 2 * 12_298_240 / 2e6, rel=0.05)
    assert given[0] < given[1] < given[2]


def test_missing_or_other_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.0.0")
    with pytest.raises(VerifyError, match=r"ai-edge-litert 1\.0\.0 is installed, but"):
        run_reference("model.tflite", [])

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(VerifyError, match="is not installed; install it: pip install ai-edge-lite"):
        run_reference("model.tflite", [])


def test_interpreter_is_not_imported_here() -> None:
    script = "import sys, utvm_deploy.oracle.reference; print('ai_edge_litert' in sys.modules)"
    root = str(Path(reference.__file__).parents[2])
    completed = process.run([sys.executable, "-c", script], timeout_s=30, env={"PYTHONPATH": root})
    assert completed.stdout.strip() == "False"
    assert reference.REFERENCE == "LiteRT 2.3.0 reference kernels (BUILTIN_REF)"


@pytest.mark.parametrize(
    "name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"]
)
def test_golden_outputs(name: str, shared_models: Path) -> None:
    golden = np.load(shared_models / f"{name}.golden.npz")
    run = run_reference(shared_models / f"{name}.tflite", list(golden["inputs"]))
    np.testing.assert_array_equal([outputs[0] for outputs in run.outputs], golden["outputs"])


def test_a_model_cannot_take_all_memory(tmp_path: Path) -> None:
    """Every tensor is within the import's limits; together they are more than a computer has."""
    model = ModelWriter()
    x = model.input((1, 2**26))
    for _ in range(reference.MEMORY_BYTES // 2**26 + 1):
        x = model.relu(x)
    model.output(x)
    path = model.save(tmp_path / "model.tflite")
    with pytest.raises(VerifyError, match=r"the reference interpreter .* model\.tflite"):
        run_reference(path, [np.zeros((1, 2**26), np.int8)])
