"""utvm profile on a board with a cycle model: figures, table, page, hot code and the gate."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.base.errors import ProbeError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.profiling.layer_costs import Profile, profile
from utvm_deploy.targets.emulator import cycle_model_digest

BOARD = "mps2_an500"
DIGITS = data_dir("models") / "digits.tflite"
#: Identical counts; the whole measure of twenty is a slow test.
FEW, MANY = 3, 20
TABLE_WIDTH = 120

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(
        shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
        reason="needs qemu-system-arm and arm-none-eabi-gcc",
    ),
]


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return utvm_deploy.compile(DIGITS, BOARD)


def profiled(compiled: CompiledModel, timing: str = "cycles") -> Profile:
    with utvm_deploy.connect(BOARD, timing=timing) as device:
        return profile(device.load(compiled), random_samples(load_model(DIGITS), 1))


def same_in(runs: int, compiled: CompiledModel) -> None:
    first = profiled(compiled)
    for _ in range(runs - 1):
        assert profiled(compiled) == first


def test_counts_are_the_same_in_every_run(compiled: CompiledModel) -> None:
    same_in(FEW, compiled)


@pytest.mark.slow
def test_counts_are_the_same_in_twenty_runs(compiled: CompiledModel) -> None:
    same_in(MANY, compiled)


def test_figures_are_consistent(compiled: CompiledModel) -> None:
    found = profiled(compiled)
    assert found.is_modelled
    assert found.tick_unit == "cycles"
    assert found.ticks_per_second == utvm_deploy.load_board(BOARD).cpu.clock_hz
    for figures, ticks in [
        (found.figures, found.ticks),
        *((layer.figures, layer.ticks) for layer in found.layers),
    ]:
        assert next(iter(figures)) == "cycles"
        assert figures["cycles"] == ticks
        misses = figures["dcache_misses_flash"] + figures["dcache_misses_ram"]
        assert figures["cycles"] == figures["core"] + 22 * misses + figures["linefill_waits"]
        assert figures["core"] <= figures["cycles"] <= figures["pessimistic"]
        assert figures["cycles"] <= figures["rich"]
        # Two instructions a cycle at most.
        assert figures["instructions"] <= 2 * figures["core"]
        mix = sum(count for name, count in figures.items() if name.startswith("mix_"))
        assert mix == figures["instructions"]
        assert figures["mix_unknown"] == 0


def test_the_model_counts_the_instructions_that_the_timer_counts(compiled: CompiledModel) -> None:
    counted, timed = profiled(compiled), profiled(compiled, "instructions")
    assert not timed.is_modelled
    assert timed.tick_unit == "instructions"
    # Reading the one and reading the other takes another number of instructions: one difference,
    # whatever was measured.
    differences = {
        one.figures["instructions"] - other.ticks
        for one, other in zip(counted.layers, timed.layers, strict=True)
    }
    assert len(differences) == 1
    assert counted.figures["instructions"] - timed.ticks in differences
    assert abs(differences.pop()) < 50


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["profile", str(DIGITS), "--board", BOARD, *argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


class Page(HTMLParser):
    """Checks that what opens closes, and that nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.seen.append(tag)
        if tag not in ("meta", "br", "rect", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_json_page_hot_code_and_gate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, baseline = tmp_path / "page.html", tmp_path / "baseline.json"
    found = run_json(capsys, "--hot", "3", "--html", str(page))
    assert found["schema"] == "utvm.profile/1"
    assert found["is_modelled"]
    assert found["seconds"] == pytest.approx(found["ticks"] / found["ticks_per_second"])
    for layer in found["layers"]:
        assert layer["ticks"] == layer["figures"]["cycles"]
        assert 0 < layer["bound"]["core"] <= layer["figures"]["core"]
        assert 0 < layer["bound"]["memory"] <= layer["ticks"]
    assert len(found["hot"]) == 3
    hottest = found["hot"][0]
    assert hottest["core"] >= found["hot"][1]["core"]
    assert hottest["function"].startswith(("digits_", "utvm_"))
    assert sum(one["cycles"] for one in hottest["instructions"]) > 0
    # Disassembled, not encodings.
    assert any("ld" in one["text"] for one in hottest["instructions"])

    parsed = Page()
    parsed.feed(page.read_text())
    assert parsed.open == []
    assert parsed.seen.count("svg") == len(found["layers"])
    assert "never measured on silicon" in page.read_text()

    found["layers"][0]["ticks"] //= 2
    baseline.write_text(json.dumps(found))
    argv = ["profile", str(DIGITS), "--board", BOARD, "--baseline", str(baseline)]
    assert main([*argv, "--fail-over", "3%"]) == 1
    assert "layer 0 (CONV_2D" in capsys.readouterr().out
    assert main([*argv, "--fail-over", "200%"]) == 0

    # A baseline of version 0.1.0, whose cycle model was another one and is not named.
    assert found.pop("cycle_model") == cycle_model_digest(load_board(BOARD))
    baseline.write_text(json.dumps(found))
    capsys.readouterr()
    assert main([*argv, "--fail-over", "200%"]) == 1
    assert "not counted by today's cycle model" in capsys.readouterr().err


def test_the_table_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("utvm_deploy.cli.output.PLAIN_WIDTH", TABLE_WIDTH)
    argv = ["profile", str(DIGITS), "--board", BOARD]
    assert main(argv) == 0
    plain = capsys.readouterr().out
    rows = [line for line in plain.splitlines() if "DEPTHWISE_CONV_2D" in line]
    assert len(rows) == 1
    table, _, prose = plain.partition("whole model: ")
    assert max(map(len, table.splitlines())) <= TABLE_WIDTH
    # Working memory lies where `utvm bench` has it, and each kernel says whose it is and why.
    assert "scratch in dtcm (tcm), weights" in prose
    assert re.search(r"^dsp [\d.]+ %, layer 3: DSP assembly, ", prose, re.MULTILINE)
    assert "modelled cycles" in plain
    # Words that are ours are explained in place.
    for word in ("core", "pessimistic", "rich", "x bound"):
        assert re.search(rf"^{word}: .*cycles", prose, re.MULTILINE)
    assert bool(re.search("by a record$", prose, re.MULTILINE)) == ("by a record: " in prose)
    assert "(modelled, never measured on silicon)" in plain
    assert main([*argv, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert "mispredictions" in wide
    assert max(map(len, wide.splitlines())) > TABLE_WIDTH


def test_an_unknown_emulator_is_an_error(
    compiled: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = "utvm_deploy.targets.emulator.plugin"
    monkeypatch.setattr(f"{plugin}.installed_qemu_version", lambda _: "11.0.0")
    # What is known of the program that is installed.
    monkeypatch.setattr("utvm_deploy.device.probe.cycle_model.plugin_for", _fresh_plugin_for)
    with pytest.raises(ProbeError, match=r"QEMU 11\.0\.0.*give --timing instructions"):
        profiled(compiled)


def _fresh_plugin_for(program: str) -> Path:
    from utvm_deploy.targets.emulator import plugin

    return plugin._plugin_for.__wrapped__(program, 0, Path(), plugin.CYCLE_MODEL)


def test_hot_code_needs_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(DIGITS), "--board", "host", "--hot", "1"]) == 1
    # Before anything is compiled.
    assert capsys.readouterr().err.startswith("error: --hot needs the cycle model, and host counts")
    # A board of the same architecture.
    assert main(["profile", str(DIGITS), "--board", "qemu_rv32imc", "--hot", "1"]) == 1
    assert capsys.readouterr().err.endswith("such as qemu_cv32e40p\n")


def test_bench_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """One configuration, whichever verb measures: same placement, same cycles in every layer."""
    model = str(data_dir("models") / "cifar10_cnn.tflite")
    found = []
    for verb in ("profile", "bench"):
        assert main([verb, model, "--board", BOARD, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    profiled, (compared,) = found[0], found[1]["models"]
    assert profiled["placement"] == compared["placement"]["ours"]
    assert profiled["figures"] == compared["ours"]
    assert [one["figures"] for one in profiled["layers"]] == [
        one["ours"] for one in compared["layers"]
    ]


def test_what_must_fail_fails_before_the_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "nowhere" / "page.html")
    for verb in ("profile", "bench"):
        for arguments, said in (
            (["--html", page], "there is no folder"),
            (
                ["--baseline", str(DIGITS)],
                "is not a baseline; give what `utvm profile --json`",
            ),
        ):
            assert main([verb, str(DIGITS), "--board", BOARD, *arguments]) == 1
            # Not even the compiling was begun.
            (line,) = capsys.readouterr().err.splitlines()
            assert said in line and len(line) < 300
    assert main(["bench", str(DIGITS), str(DIGITS), "--board", BOARD]) == 1
    assert "two models are called digits" in capsys.readouterr().err
