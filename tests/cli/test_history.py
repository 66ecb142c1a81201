"""utvm history and utvm compare, and what verbs keep for them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base.files import file_digest
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.keep_run import keep_run, model_digests
from utvm_deploy.cli.main import main
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.results.runs.store import RunStore

MODEL = Path(__file__).resolve().parents[2] / "models" / "digits.tflite"
pytestmark = pytest.mark.tools


def result(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_profiles_are_kept_and_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = ("profile", str(MODEL), "--board", "host")
    _, first = result(capsys, *profile, "--kernels", "generic")
    (tmp_path / "now.json").write_text(json.dumps(first))
    assert main(["verify", str(MODEL), "--board", "host", "--samples", "1"]) == 0
    assert main([*profile, "--no-store"]) == 0
    assert main([*profile, "--dry-run"]) == 0
    _, found = result(capsys, "history", str(MODEL))
    verify, kept = found["runs"]
    assert (verify["verb"], kept["verb"]) == ("verify", "profile")
    assert kept["models"][0]["ticks"] == first["ticks"]
    assert kept["options"]["kernels"] == "generic"
    # A run by its digits, and the same run by its file.
    code, compared = result(capsys, "compare", kept["run"][:8], "now.json", "--fail-over", "1%")
    assert (code, compared["ok"]) == (0, True)
    assert {change["percent"] for change in compared["models"][0]["changes"]} <= {0.0, None}
    first["layers"][0]["ticks"] *= 2
    (tmp_path / "now.json").write_text(json.dumps(first))
    compare = "compare", kept["run"], "now.json"
    code, compared = result(capsys, *compare, "--fail-over", "50", "--html", "page.html")
    assert (code, compared["ok"]) == (1, False)
    assert compared["models"][0]["changes"][0]["percent"] == 100.0
    page = (tmp_path / "page.html").read_text()
    assert page.count('class="n bad">+100.0 %') == 1
    assert page.count("<rect") == 2 * len(compared["models"][0]["changes"])
    first["layers"][0]["ticks"] //= 2
    first["ram_bytes"] += first["ram_bytes"] // 2
    (tmp_path / "now.json").write_text(json.dumps(first))
    code, compared = result(capsys, *compare, "--fail-over", "49")
    assert code == 1
    assert [(one["what"], one["figure"]) for one in compared["grown"]] == [("RAM", "bytes")]
    assert main(["compare", verify["run"], kept["run"]]) == 1
    assert "is of verify" in capsys.readouterr().err


def test_a_model_that_goes_while_a_verb_runs_is_kept_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "short lived.tflite"
    model.write_bytes(MODEL.read_bytes())

    def keep(*arguments: Any) -> None:
        model.unlink()
        keep_run(*arguments)

    monkeypatch.setattr("utvm_deploy.cli.main.keep_run", keep)
    assert main(["verify", str(model), "--board", "host", "--samples", "1"]) == 0
    _, found = result(capsys, "history")
    kept = found["runs"][0]["models"][0]
    assert (kept["name"], kept["sha256"]) == ("short_lived", file_digest(MODEL))


def test_two_files_of_one_name_are_two_models(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "kws.tflite" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(str(path))
    found = model_digests(argparse.Namespace(models=[*paths, tmp_path / "absent.tflite"]))
    assert found == {"kws": file_digest(paths[0]), f"kws ({paths[1]})": file_digest(paths[1])}


def test_a_result_that_cannot_be_compared_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = (ModelFigures("digits", "da2236d2"),)
    facts = "profile", 1e300, 1.0, 0, "host", "", figures
    with RunStore(runs_file()) as store:
        store.add(Run("aaaaaaaaaaaa", *facts, result={"model": "digits"}))
    assert main(["compare", "aaaa", "aaaa"]) == 1
    assert "the result of run aaaaaaaaaaaa cannot be read" in capsys.readouterr().err
    # Nor does a clock that was wrong prevent the list.
    assert main(["history"]) == 0
    assert "aaaaaaaaaaaa" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "no such file", "abcd"], "neither a file nor a run"),
        (["compare", "abcdef", "abcdef"], "has no run abcdef"),
        (["compare", "ab", "cd"], "too short"),
        (["compare", str(MODEL), str(MODEL)], "is not a baseline"),
    ],
)
def test_runs_that_are_not_there(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_no_runs_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "nothing"]) == 0
    assert "no runs" in capsys.readouterr().out


def test_a_store_that_cannot_be_written_is_told_and_the_verb_succeeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UTVM_RUNS", str(tmp_path / "file" / "runs.sqlite"))
    assert main(["verify", str(MODEL), "--board", "host", "--samples", "1"]) == 0
    assert "this run is not kept" in capsys.readouterr().err
