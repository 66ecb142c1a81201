"""Functions of ``utvm_deploy`` give what the verbs print, with tables, pictures and pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.base.errors import BenchError, BundleError, CompileError, ModelError, UsageError
from utvm_deploy.base.results import Result, Tabled
from utvm_deploy.cli.main import main
from utvm_deploy.results.pages.notebook import html_of

DIGITS = models.path("digits")


def said(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    """What the verb prints with --json."""
    assert main([*map(str, argv), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def shown(result: Tabled, *told: str) -> None:
    """One line, a table of equal rows, and a page without scripts."""
    text, page = repr(result), html_of(result)
    assert "\n" not in text and len(text) < 300
    assert all(one in text for one in told), text
    assert result.table and all(row.keys() == result.table[0].keys() for row in result.table)
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    if result.svg is not None:
        assert "<svg" in result.svg and "data:image/svg+xml" in page


def test_inspect_says_what_the_verb_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = utvm_deploy.inspect(DIGITS, passes=True)
    assert found.ok and found.svg is not None
    assert found.to_dict() == said(capsys, "inspect", DIGITS, "--passes")
    shown(found, "digits", "operators", "MACs")


def test_inspect_of_a_model_that_cannot_be_compiled_names_the_operator(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"\0" * 64)
    with pytest.raises(ModelError):
        utvm_deploy.inspect(broken)


@pytest.mark.tools
def test_verify_says_what_the_verb_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = utvm_deploy.verify(DIGITS, "host", samples=2)
    assert found.ok and {row["wrong_elements"] for row in found.table} == {0}
    wanted = said(capsys, "verify", DIGITS, "--board", "host", "--samples", 2, "--no-store")
    assert found.to_dict() == wanted
    shown(found, "digits on host", "2 samples", "equal to")


@pytest.mark.tools
def test_profile_says_what_the_verb_says_and_leaves_a_device_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = []
    with utvm_deploy.connect("mps2_an500") as device:
        found = utvm_deploy.profile(
            DIGITS, device, progress=lambda what, done, total: steps.append(what)
        )
        assert device.hello.tick_unit == found.found.tick_unit == "cycles"
    wanted = said(capsys, "profile", DIGITS, "--board", "mps2_an500", "--no-store")
    assert found.to_dict() == wanted
    assert sum(row["cycles"] for row in found.table) <= found.found.ticks * 1.1
    assert any("profiling" in step for step in steps)
    shown(found, "digits on mps2_an500", "modelled cycles", "RAM", "flash")


@pytest.mark.tools
def test_memory_says_what_the_verb_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = utvm_deploy.memory(DIGITS, "host", image=False)
    wanted = said(capsys, "memory", DIGITS, "--board", "host", "--no-image")
    assert found.to_dict() == wanted
    assert any(row["is_at_peak"] for row in found.table)
    shown(found, "digits on host", "arena", "peak")


@pytest.mark.tools
def test_bundle_says_what_the_verb_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "bundle"
    found = utvm_deploy.bundle(DIGITS, "host", folder, samples=2, latency=False)
    wanted = said(
        capsys,
        *("bundle", DIGITS, "--board", "host", "-o", tmp_path / "other", "--samples", 2),
        "--no-latency",
    )
    assert found.to_dict() == {**wanted, "path": str(folder)}
    assert "manifest.json" in {row["file"] for row in found.table}
    shown(found, "bundle", "arena")
    zipped = utvm_deploy.bundle(DIGITS, "host", tmp_path / "b.zip", samples=2, latency=False)
    assert len(zipped.table) == len(found.table)
    with pytest.raises(BundleError, match=str(tmp_path)):
        utvm_deploy.bundle(DIGITS, "host", tmp_path)


@pytest.mark.tools
def test_compile_says_what_the_verb_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = utvm_deploy.compile(DIGITS, "host")
    wanted = said(capsys, "compile", DIGITS, "--board", "host", "-o", tmp_path / "a.tar")
    changing = {"seconds": {}, "output": None}
    assert {**found.to_dict(), **changing} == {**wanted, **changing}
    shown(found, "digits for host", "layers")


@pytest.mark.tools
def test_evaluate_says_what_the_verb_says(capsys: pytest.CaptureFixture[str]) -> None:
    data = DIGITS.with_name("digits_labelled.npz")
    model = DIGITS.with_name("digits_int8.tflite")
    found = utvm_deploy.evaluate(model, data, samples=20)
    wanted = said(capsys, "eval", model, "--data", data, "--samples", 20)
    assert without_times(found.to_dict()) == without_times(wanted)
    shown(found, "digits_int8", "20 samples", "reference", "accuracy")


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    for run in result["runs"]:
        del run["seconds"], run["samples_per_second"]
    return result


@pytest.mark.tools
def test_quantize_says_what_the_verb_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = models.path("digits_float"), DIGITS.with_name("digits_calib.npz")
    found = utvm_deploy.quantize(model, data)
    assert isinstance(found, Result)
    output = tmp_path / "q.tflite"
    wanted = said(capsys, "quantize", model, "--data", data, "-o", output)
    assert found.to_dict() == {**wanted, "output": None}
    shown(found, "int8", "no operator in float32", "SQNR")
    # What is in memory has no file.
    assert utvm_deploy.inspect(found).found.operators == utvm_deploy.inspect(output).found.operators


def test_compare_takes_results_objects_and_files(tmp_path: Path) -> None:
    before = {
        "schema": "utvm.profile/1",
        "model": "m",
        "board": "b",
        "tick_unit": "cycles",
        "ticks": 200,
        "ram_bytes": 10,
        "flash_bytes": 20,
        "layers": [{"index": 0, "operator": "CONV_2D", "name": "c", "ticks": 100}],
    }
    now = {**before, "ticks": 230}
    file = tmp_path / "before.json"
    file.write_text(json.dumps(before))
    found = utvm_deploy.compare(file, now, fail_over=10)
    assert not found.ok and utvm_deploy.compare(before, now).ok
    assert found.table[1]["percent"] == pytest.approx(15.0)
    shown(found, "m: 200 -> 230 cycles (+15.0 %)")
    assert found.to_dict()["grown"]
    with pytest.raises(BenchError, match="neither a file nor a run"):
        utvm_deploy.compare(before, "nosuch.json")
    with pytest.raises(UsageError, match="type int has no figures"):
        utvm_deploy.compare(1, now)  # type: ignore[arg-type]


@pytest.mark.tools
def test_tune_keeps_records_and_says_what_the_verb_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "r.jsonl"
    seen = []
    found = utvm_deploy.tune(DIGITS, "mps2_an386", records, trials=2, watch=seen.append)
    assert records.exists() and seen and found.found.trials == 2
    shown(found, "kernels", "2 of 2 trials", "digits")
    shown(seen[-1], "kernels", "trials")
    assert found.table == found.found.table
    again = said(
        capsys,
        *("tune", DIGITS, "--board", "mps2_an386", "--records", records, "--trials", 2),
        "--no-store",
    )
    result = found.to_dict()
    assert result.keys() == again.keys()
    same = ("schema", "core", "compiler", "flags", "unit", "trials", "models", "records")
    assert {name: result[name] for name in same} == {name: again[name] for name in same}
    assert utvm_deploy.compile(DIGITS, "mps2_an386", records=records).layers


@pytest.mark.tools
def test_bench_says_what_the_verb_says(capsys: pytest.CaptureFixture[str]) -> None:
    model = models.path("cifar10_cnn")
    found = utvm_deploy.bench(model, "mps2_an500")
    assert found.ok
    assert found.to_dict() == said(capsys, "bench", model, "--board", "mps2_an500", "--no-store")
    shown(found, "cifar10_cnn on mps2_an500", "times as fast as")


def test_calls_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    with pytest.raises(UsageError, match="no end to the tuning; give trials=N"):
        utvm_deploy.tune(DIGITS, "host", records)
    with pytest.raises(UsageError, match="no model to tune"):
        utvm_deploy.tune([], "host", records, trials=1)
    with pytest.raises(UsageError, match="workers of a cluster run no code of yours"):
        utvm_deploy.tune(
            DIGITS, "host", records, trials=1, cluster="tcp://127.0.0.1:1", plugin="x.py"
        )
    with pytest.raises(UsageError, match="no model to compare"):
        utvm_deploy.bench([], "host")
    with pytest.raises(BenchError, match="two models are called digits"):
        utvm_deploy.bench([DIGITS, DIGITS], "mps2_an500")


@pytest.mark.parametrize(
    "call",
    [
        lambda model: utvm_deploy.inspect(model),
        lambda model: utvm_deploy.verify(model, "host"),
        lambda model: utvm_deploy.profile(model, "host"),
        lambda model: utvm_deploy.memory(model, "host"),
    ],
)
def test_what_is_no_model_is_refused_with_its_type(call: Callable[[Any], object]) -> None:
    with pytest.raises(UsageError, match=r"type list is not a model.*path of a model file"):
        call([1, 2])


def test_a_model_that_does_not_fit_is_refused_before_anything_is_built() -> None:
    with pytest.raises(CompileError, match="microbit"):
        utvm_deploy.memory(models.path("cifar10_cnn"), "microbit")


def test_arguments_of_wrong_types_are_sentences() -> None:
    with pytest.raises(UsageError, match=r"flash_budget='64K' is not a number"):
        utvm_deploy.quantize("m.tflite", "d.npz", scheme="mixed", flash_budget="64K")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"reference is an object of type dict; give the path"):
        utvm_deploy.evaluate("m.tflite", {}, reference={})  # type: ignore[arg-type]
