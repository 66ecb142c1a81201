"""Profiles and reports without the driver: our layers are measured, and Vela's figures are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from make_golden import MODEL, golden

import utvm_deploy
from utvm_deploy.backends.ethos_u import regions
from utvm_deploy.backends.ethos_u.check import NpuProgram
from utvm_deploy.backends.ethos_u.configurations import Configuration, configuration
from utvm_deploy.backends.ethos_u.vela import Estimate, program_in
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.project import find_ethos_u
from utvm_deploy.records import read_records
from utvm_deploy.results.reporting.differences import compared
from utvm_deploy.results.reporting.stored import read_report

CONFIG = "ethos-u55-128"
CYCLES = 9_000
NPU = "Ethos-U55-128"
TOLD = f"Vela's estimate: {CYCLES:,} cycles of the NPU"


@pytest.fixture(autouse=True)
def vela(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vela that leaves the last layer, a SOFTMAX, to the core.

    Its stream is that of the whole model, whose outputs have as many bytes. Nothing runs it here.
    """
    last = load_model(MODEL, is_quiet=True).operators[-1]
    assert last.kind == "SOFTMAX"
    graph = load_model(MODEL, is_quiet=True)
    refused = frozenset(graph.tensors[number].name for number in last.outputs)

    def compiled(model: bytes, name: str, chosen: Configuration) -> tuple[NpuProgram, Estimate]:
        program = program_in(golden(CONFIG), configuration(CONFIG))
        return program, Estimate(CYCLES, 500_000_000, chosen.system)

    monkeypatch.setattr(regions, "compiled_by_vela", compiled)
    monkeypatch.setattr(regions, "refused_by_vela", lambda *_: refused)


def test_a_profile_measures_our_layers_and_tells_vela_s_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    arguments = ["profile", str(MODEL), "--board", "mps2_an500", "--ethos-u", CONFIG]
    assert main([*arguments, "--no-store", "--json", "--html", str(page)]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    region, softmax = found["layers"]
    assert (region["engine"], region["npu_cycles"]) == (NPU, CYCLES)
    assert region["bound"] is None and region["ticks_per_mac"] is None
    assert softmax["operator"] == "SOFTMAX" and softmax["npu_cycles"] is None
    ours = utvm_deploy.profile(MODEL, "mps2_an500").found.layers[-1]
    # Other bytes are other misses of its table, but the core does what it does without an NPU.
    assert softmax["figures"]["core"] == pytest.approx(ours.figures["core"], rel=0.01)
    assert (found["npu_cycles"], found["stand_in"]) == (CYCLES, NPU)
    assert found["ticks"] < CYCLES + softmax["ticks"]
    text = printed.err
    assert f"{TOLD}, which are in no sum here" in text
    assert f"whole model without {NPU}" in text and f"latency without {NPU}" in text
    assert f"without a driver of {NPU}, a stand-in did nothing" in text
    html = page.read_text("utf-8")
    assert TOLD.replace("'", "&#39;") in html and "outputs are not computed" in html
    assert "<td" in html and ">NPU (Vela)<" in html


def test_a_report_compares_no_bytes_that_nobody_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    arguments = ["report", str(MODEL), "--board", "host", "--ethos-u", CONFIG, "-o", str(page)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert f"without {NPU}" in printed.out and "no byte compared" in printed.out
    assert TOLD in printed.out
    found = read_report(page)
    assert found["verify"] is None and found["profile"]["npu_cycles"] == CYCLES
    assert all(one.is_same for one in compared(found, found))
    html = page.read_text("utf-8")
    assert "not compared" in html and "Vela&#39;s estimate, never measured" in html


def test_a_report_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    arguments = ["--board", "host", "--ethos-u", CONFIG, "-o", str(page)]
    assert main(["report", str(MODEL), *arguments]) == 0
    found = read_report(page)
    assert (found["plugin"], found["ethos_u"]) == (False, f"{CONFIG},shared-sram")
    capsys.readouterr()
    assert main(["reproduce", str(page)]) == 0
    assert " 0 differ" in capsys.readouterr().out


def test_tuning_keeps_to_our_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last layer is ours; what the NPU computes is neither tuned nor recorded."""
    tune = ["tune", str(MODEL), "--board", "mps2_an500", "--ethos-u", CONFIG]
    assert main([*tune, "--show-space", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert [one["kernel"] for one in kernels] == ["softmax_1x10:int8"]


@pytest.mark.emulator
def test_tuned_layers_run_beside_the_stand_in(tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    board = load_board("mps2_an500")
    plugin = find_ethos_u(CONFIG, board)
    found = utvm_deploy.tune(MODEL, board, records, trials=3, plugin=plugin)
    assert {one.kernel.name for one in read_records(records)} == {"softmax_1x10"}
    (run,) = found.model_runs
    assert not run.note
    compiled = utvm_deploy.compile(MODEL, board, plugin=plugin, records=records)
    assert compiled.layers[0].engine == NPU


def test_what_needs_outputs_names_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(MODEL), "--board", "mps2_an500", "--ethos-u", CONFIG]
    assert main([*arguments, "--samples", "1"]) == 1
    error = capsys.readouterr().err
    assert "give your build of it, --ethos-u-driver DIR" in error and error.count("\n") <= 4


def test_a_dry_run_shows_the_regions(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["profile", str(MODEL), "--board", "mps2_an500", "--ethos-u", CONFIG]
    assert main([*arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f"by {NPU}: ethosu_invoke_v3; {TOLD}" in printed and printed.count(TOLD) == 1


def test_an_archive_keeps_the_estimate(tmp_path: Path) -> None:
    board = load_board("mps2_an500")
    compiled = utvm_deploy.compile(MODEL, board, plugin=find_ethos_u(CONFIG, board))
    write_library(compiled, tmp_path / "digits.tar")
    kept = read_library(tmp_path / "digits.tar")
    assert [one.npu_cycles for one in kept.layers] == [CYCLES, None]
    assert [one["npu_cycles"] for one in compiled.to_dict()["layers"]] == [CYCLES, None]
