"""utvm eval and utvm_deploy.evaluate with models that run."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter
from small_models import ring_buffer, svdf
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import DataError, UsageError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

MODELS = data_dir("models")
DIGITS, FLOAT = MODELS / "digits_int8.tflite", MODELS / "digits_float.tflite"
DATA = MODELS / "digits_labelled.npz"
RNG = np.random.default_rng(11)

pytestmark = pytest.mark.tools


def evaluated(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> dict[str, Any]:
    assert main(["eval", *map(str, argv), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def labelled() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    with np.load(DATA) as file:
        return file["inputs"], file["labels"]


def test_digits_as_float_by_the_reference_and_on_the_host(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, labelled: tuple[Any, Any]
) -> None:
    inputs, labels = labelled
    page = tmp_path / "page.html"
    argv = (DIGITS, "--data", DATA, "--reference", FLOAT, "--board", "host", "--samples", 90)
    limits = ("--min", "accuracy=0.95", "--max", "accuracy=1", "--html", page)
    assert main(["eval", *map(str, argv), "--max", "accuracy=1"]) == 2  # better when larger
    capsys.readouterr()
    found = evaluated(capsys, *argv, *limits[:2], *limits[4:])
    assert found["schema"] == "utvm.eval/1"
    assert (found["task"], found["items"], found["board"]) == ("classification", 90, "host")
    assert "quantized to int8" in found["inputs"]
    assert found["gate"]["ok"]
    floats, reference, device = found["runs"]
    assert [run["engine"] for run in found["runs"]] == ["float", "reference", "device"]
    assert device["metrics"] == reference["metrics"] == found["metrics"]
    assert device["confusion"] == reference["confusion"]
    # The same by hand.
    kept = np.arange(90) * len(labels) // 90
    run = run_reference(FLOAT, [inputs[place][None] for place in kept], outputs_only=True, apart=1)
    right = [
        int(outputs[0].argmax()) == label
        for outputs, label in zip(run.outputs, labels[kept], strict=True)
    ]
    assert floats["metrics"]["accuracy"] == pytest.approx(np.mean(right))
    assert np.trace(floats["confusion"]) == sum(right)
    assert device["metrics"]["accuracy"] >= floats["metrics"]["accuracy"] - 0.05
    assert 20 < device["metrics"]["sqnr_db"] < 80
    _, equal, whole = found["changes"]
    assert (equal["changed"], equal["largest_difference"], equal["sqnr_db"]) == (0, 0, None)
    assert whole["largest_difference"] > 0
    text = page.read_text()
    _Page().feed(text)
    assert "Confusion matrix (device)" in text and "LiteRT 2.3.0" in text


class _Page(HTMLParser):
    """Checks that nothing is fetched from elsewhere."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}


@pytest.mark.emulator
@pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)
def test_digits_on_an_emulated_board(labelled: tuple[Any, Any]) -> None:
    inputs, labels = labelled
    # The integers of a file with int8 samples are taken as they are.
    tensor = load_model(DIGITS).tensors[load_model(DIGITS).inputs[0]]
    assert tensor.quantization is not None
    scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
    integers = np.clip(np.round(inputs / scale) + zero, -128, 127).astype(np.int8)
    seen: list[tuple[str, int, int]] = []
    found = utvm_deploy.evaluate(
        DIGITS,
        {"inputs": integers, "labels": labels},
        "mps2_an500",
        samples=40,
        progress=lambda *step: seen.append(step),
    )
    assert found.inputs == "int8, as the data have them"
    assert found.metrics["accuracy"] > 0.9 and found.metrics == found.of("device").metrics
    assert not found.changes[0].largest_difference
    assert ("evaluating on mps2_an500: sample", 40, 40) in seen
    assert found.to_json()["runs"][-1]["samples_per_second"] > 0


def test_a_gate_that_is_not_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = _dense(tmp_path, outputs=1)
    np.savez(tmp_path / "d.npz", inputs=np.eye(4, dtype="f4"), targets=[1.0, 2, 3, 4])
    argv = ("--data", tmp_path / "d.npz", "--max", "rmse=0.001", "--min", "r2=-100")
    found = evaluated(capsys, path, *argv, code=1)
    assert found["task"] == "regression" and found["board"] is None
    assert not found["gate"]["ok"]
    limit, kept = found["gate"]["limits"]
    assert limit["found"] == found["metrics"]["rmse"] > kept["value"]
    assert main(["eval", str(path), *map(str, argv)]) == 1
    said = capsys.readouterr().out
    assert "OUT OF THE LIMIT: rmse is" in said and "it should be at most 0.001" in said


def _dense(folder: Path, outputs: int, *, is_float: bool = False) -> Path:
    """A layer whose int8 and float forms have the same weights."""
    weights = np.random.default_rng(5).integers(-100, 100, (outputs, 4)).astype(np.int8)
    m: ModelWriter = FloatWriter() if is_float else ModelWriter()
    x = m.input((1, 4), scale=1 / 64)
    given = weights.astype(np.float32) / 100 if is_float else weights
    m.output(m.fully_connected(x, given, weight_scale=0.01, scale=1 / 64))
    return m.save(folder / f"{'float' if is_float else 'int8'}_{outputs}.tflite")


def test_reconstruction_errors_of_windows(tmp_path: Path) -> None:
    path, floats = _dense(tmp_path, 4), _dense(tmp_path, 4, is_float=True)
    rows = []
    for place in range(4):
        recording = RNG.normal(0, 0.2 + 0.3 * (place % 2), 4 + place).astype("<f4")
        recording.tofile(tmp_path / f"{place}.bin")
        rows.append(f"{place}.bin,2,{place % 2},16,4")
    (tmp_path / "y_labels.csv").write_text("\n".join(rows))
    found = utvm_deploy.evaluate(path, tmp_path, reference=floats)
    assert (found.problem.task, found.problem.items, len(found.problem.item)) == ("anomaly", 4, 10)
    # The mean over windows of the mean square of input less output, by hand.
    weights = np.random.default_rng(5).integers(-100, 100, (4, 4)) / 100
    expected = []
    for place in range(4):
        recording = np.fromfile(tmp_path / f"{place}.bin", "<f4")
        windows = [recording[start : start + 4] for start in range(place + 1)]
        expected.append(np.mean([np.square(w - weights @ w).mean() for w in windows]))
    scores = found.of("float").run.values[:, 0]
    assert scores == pytest.approx(expected, rel=1e-5)
    assert found.metrics["sqnr_db"] > 20
    assert set(found.metrics) == {"auc", "sqnr_db"}


@pytest.mark.parametrize("kind", ["svdf", "variable"])
def test_each_sample_is_the_first_one_for_a_model_with_state(tmp_path: Path, kind: str) -> None:
    m = ModelWriter()
    if kind == "svdf":
        x = m.input((1, 8), scale=0.05)
        m.output(svdf(m, x, 3, 4, 1))
    else:
        x = m.input((1, 2, 4, 1), scale=0.05)
        m.output(ring_buffer(m, x, np.full((1, 3, 4, 1), 7, np.int8)))
    path = m.save(tmp_path / "state.tflite")
    shape = m.tensors[m.inputs[0]].shape[1:]
    sample = RNG.integers(-128, 128, shape, np.int8)
    size = int(np.prod(m.tensors[m.outputs[0]].shape))
    data = {"inputs": np.array([sample, -sample // 2, sample]), "targets": np.ones((3, size))}
    found = utvm_deploy.evaluate(path, data, "host", task="regression")
    for one in found.judged:
        assert np.array_equal(one.run.values[0], one.run.values[2])
        assert not np.array_equal(one.run.values[0], one.run.values[1])
    assert not found.changes[0].largest_difference


def test_a_reference_that_does_not_fit(tmp_path: Path) -> None:
    path, other = _dense(tmp_path, 3), _dense(tmp_path, 2, is_float=True)
    data = {"inputs": np.zeros((3, 4), np.float32)}
    with pytest.raises(DataError, match=r"has 2 elements, and that of .* has 3; give the float"):
        utvm_deploy.evaluate(path, data, reference=other)
    m = FloatWriter()
    m.output(m.relu(m.input((1, 2, 2))))
    other = m.save(tmp_path / "square.tflite")
    with pytest.raises(
        DataError, match=r"takes \(1, 2, 2\), and .* takes \(1, 4\); give the float"
    ):
        utvm_deploy.evaluate(path, data, reference=other)
    with pytest.raises(DataError, match="there is no float model"):
        utvm_deploy.evaluate(path, data, reference=tmp_path / "none.tflite")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--min", "auc=0.9"], "there is no such metric for this model and its data; give one of"),
        (["--min", "agreement=0.9"], "macro_f1, or the float model to compare with (--reference)"),
        (["--min", "accuracy=95"], "accuracy is at most 1; give a part of 1, such as accuracy=0.9"),
        (["--min", "top5=99"], "top5 is at most 1"),
        (["--min", "accuracy"], "is not METRIC=VALUE, such as accuracy=0.9"),
        (["--samples", "0"], "0 is not above zero"),
        (["--data", "none.npz"], "cannot read the data none.npz"),
        (["--task", "anomaly"], "is not of the size of the input; choose another task (--task)"),
        (["--html", "none/page.html"], "there is no folder none"),
        (["--html", str(DATA)], "digits_labelled.npz is the data itself; give another name"),
        (["--reference", str(FLOAT), "--html", str(FLOAT)], "is the float model itself"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_args: object, **_options: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("utvm_deploy.base.process.run", started)
    assert main(["eval", str(DIGITS), "--data", str(DATA), *argv]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error and error.count("\n") == 1


def test_a_bad_value_is_found_before_the_board_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _dense(tmp_path, 3)
    inputs = np.zeros((50, 4), np.float32)
    inputs[41, 2] = np.nan
    np.savez(tmp_path / "d.npz", inputs=inputs, labels=np.zeros(50, int))

    def built(*_args: object, **_options: object) -> None:
        raise AssertionError("an image was built")

    monkeypatch.setattr("utvm_deploy.device.device.build_image", built)
    argv = ["eval", str(path), "--data", str(tmp_path / "d.npz"), "--board", "host"]
    assert main(argv) == 1
    assert "sample 41, holds nan; remove the sample" in capsys.readouterr().err


def test_a_float_model_on_a_board_that_gives_infinities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = FloatWriter()
    m.output(m.node("EXP", [m.input((1, 3))], (1, 3)))
    path = m.save(tmp_path / "infinite.tflite")
    np.savez(tmp_path / "d.npz", inputs=1e4 * RNG.normal(size=(5, 3)), targets=np.ones((5, 3)))
    found = evaluated(capsys, path, "--data", tmp_path / "d.npz", "--board", "host")
    assert found["task"] == "regression"
    assert found["metrics"]["mae"] is None
    assert "NaN or infinity to 4 of 5 samples" in found["notes"][0]
    assert main(["eval", str(path), "--data", str(tmp_path / "d.npz")]) == 0


def test_options_of_compile_need_a_board(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="optimize: this says how a model is compiled, and that"):
        utvm_deploy.evaluate(_dense(tmp_path, 3), {}, optimize="size")


def test_data_of_another_scale_are_noticed(tmp_path: Path) -> None:
    path = _dense(tmp_path, 3)
    data = {"inputs": RNG.uniform(0, 255, (20, 4)), "labels": np.zeros(20, int)}
    found = utvm_deploy.evaluate(path, data)
    assert found.clipped > 0.9
    assert "were clipped; are the data scaled as the model was trained?" in found.notes[0]


def test_answers_that_are_not_finite_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = FloatWriter()
    m.output(m.node("EXP", [m.input((1, 2))], (1, 2)))
    model, data = m.save(tmp_path / "exp.tflite"), tmp_path / "data.npz"
    np.savez(data, inputs=np.array([[1e4, 0]], np.float32), labels=np.array([0]))
    assert main(["eval", str(model), "--data", str(data)]) == 0
    told = capsys.readouterr().out
    assert "classification, 1 sample of data.npz" in told
    assert "reference answers NaN or infinity to 1 of 1 samples; check" in told


@pytest.mark.parametrize("other", ["int8", "int16x8"])
def test_a_quantized_model_to_compare_with_is_not_called_float(
    capsys: pytest.CaptureFixture[str], other: str
) -> None:
    path = MODELS / f"digits_{other}.tflite"
    found = evaluated(capsys, DIGITS, "--data", DATA, "--reference", path, "--samples", 5)
    assert [run["engine"] for run in found["runs"]] == [other, "reference"]
    assert found["runs"][1]["metrics"]["agreement"] >= 0.8
    assert main(["eval", str(DIGITS), "--data", str(DATA), "--reference", str(path)]) == 0
    assert f"{other} -> reference: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((42, DATA), "an object of type int cannot be evaluated; give the path of a model file"),
        ((DIGITS,), "no data cannot be evaluated; give the path of a dataset"),
        ((DIGITS, [1, 2]), "data of type list cannot be evaluated"),
        ((DIGITS, DATA, None, 0), "samples is 0; give how many are run, at least 1"),
    ],
)
def test_arguments_of_other_kinds(arguments: Any, told: str) -> None:
    *first, samples = arguments if len(arguments) == 4 else (*arguments, None)
    with pytest.raises(UsageError, match=told):
        utvm_deploy.evaluate(*first, samples=samples)


def test_the_verb_is_the_function(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    function = utvm_deploy.evaluate

    def evaluate(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(utvm_deploy, "evaluate", evaluate)
    evaluated(capsys, DIGITS, "--data", DATA, "--samples", 5)
    assert len(asked) == 1


def test_a_plan_can_be_refused_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Any) -> None:
        raise UsageError(f"{len(plan.data)} samples are too many")

    monkeypatch.setattr(
        "utvm_deploy.api.steps.compile_fitting",
        lambda *_, **__: pytest.fail("compiled"),
    )
    with pytest.raises(UsageError, match=r"^5 samples are too many$"):
        utvm_deploy.evaluate(DIGITS, DATA, "host", samples=5, check_plan=refuse)
