"""utvm models and utvm_deploy.models: what ships is listed and copied, and nothing is replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli.main import main

FOLDER = Path(__file__).resolve().parents[2] / "models"


def test_the_list_has_each_file_of_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["models"]
    listed = [file["name"] for one in found for file in one["files"]]
    there = [file.name for file in FOLDER.rglob("*") if file.suffix in (".tflite", ".npz")]
    assert sorted(listed) == sorted(there)
    assert [one["weights"] for one in found if one["name"] == "cifar10_cnn"] == ["random"]
    assert main(["models"]) == 0
    told = capsys.readouterr().out
    assert all(one["name"] in told for one in found)


def test_get_copies_the_model_and_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["models", "get", "digits"]) == 0
    assert capsys.readouterr().out == "digits.tflite\ndigits_test.npz\n"
    for name in ("digits.tflite", "digits_test.npz"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    assert main(["models", "get", "digits_float", "-o", "a/b"]) == 0
    assert len(list((tmp_path / "a" / "b").iterdir())) == 5


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["get", "digit"], 1, "no model 'digit' ships with utvm_deploy; did you mean 'digits'?"),
        (["get", "resnet"], 1, "there are digits, digits_float, diabetes_float, cifar10_cnn, gru"),
        (["get"], 2, "needs the name of a model: digits, "),
        (["put", "digits"], 2, "invalid choice: 'put'"),
        (["get", "digits"], 1, "digits_test.npz exists; give another folder"),
        (["get", "diabetes_float", "-o", "digits_test.npz"], 1, "digits_test.npz is a file"),
        (["get", "diabetes_float", "-o", "digits_test.npz/x"], 1, "cannot make the folder"),
    ],
)
def test_what_cannot_be_copied_is_one_sentence_and_copies_nothing(
    argv: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits_test.npz").write_text("mine")
    assert main(["models", *argv]) == code
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert [path.name for path in tmp_path.iterdir()] == ["digits_test.npz"]
    assert (tmp_path / "digits_test.npz").read_text() == "mine"


def test_a_dry_run_copies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["models", "get", "digits", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_from_python(tmp_path: Path) -> None:
    assert utvm_deploy.models is models
    assert models.names()[0] == "digits"
    assert models.path("digits").read_bytes() == (FOLDER / "digits.tflite").read_bytes()
    assert models.get("cifar10_cnn", tmp_path) == [tmp_path / "cifar10_cnn.tflite"]
    with pytest.raises(UtvmError, match="exists"):
        models.get("cifar10_cnn", tmp_path)
