"""utvm memory: the arena, the peak, the stack, flash, and the same numbers as other verbs."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.memory_use import ArenaUse
from utvm_deploy.results.profiling.memory_report import live_at

BOARD = "mps2_an500"
DIGITS = str(data_dir("models") / "digits.tflite")

needs_gcc = pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc"
)


def result_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_bytes_that_two_uses_share_count_once() -> None:
    uses = [
        ArenaUse("a", "input", 0, 100, 0, 1),
        ArenaUse("b", "activation", 60, 100, 1, 2),
        ArenaUse("c", "scratch", 200, 8, 1, 1),
    ]
    assert [live_at(uses, layer) for layer in range(4)] == [100, 168, 100, 0]


@pytest.mark.tools
@needs_gcc
def test_the_numbers_are_those_of_other_verbs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, page = tmp_path / "m.svg", tmp_path / "m.html"
    pictures = ("--svg", str(svg), "--html", str(page))
    found = result_of(capsys, "memory", DIGITS, "--board", BOARD, *pictures)
    archive = str(tmp_path / "m.tar")
    compiled = result_of(capsys, "compile", DIGITS, "--board", BOARD, "-o", archive)
    assert found["schema"] == "utvm.memory/1"
    assert found["arena_bytes"] == compiled["arena_bytes"]
    assert found["peak"]["live_bytes"] + found["peak"]["unused_bytes"] == found["arena_bytes"]
    assert found["peak"]["lower"]
    assert {use["is_at_peak"] for use in found["uses"]} == {True, False}
    flash = found["flash"]
    assert flash["model_bytes"] + flash["runtime_bytes"] == found["image"]["flash_bytes"]
    assert found["stack"]["path"][0]["function"] == "digits_run"
    assert found["stack"]["bytes"] == sum(one["bytes"] for one in found["stack"]["path"])
    assert 0 < found["stack"]["bytes"] < 1024
    # The files load nothing, and are well formed.
    assert ET.fromstring(svg.read_text()).tag.endswith("svg")
    HTMLParser().feed(page.read_text())
    assert "http" not in page.read_text().replace("http://www.w3.org", "")


@pytest.mark.tools
@needs_gcc
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_a_profile_names_both_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(capsys, "memory", DIGITS, "--board", BOARD)
    profiled = result_of(capsys, "profile", DIGITS, "--board", BOARD)
    assert profiled["ram_bytes"] == found["image"]["ram_bytes"]
    assert profiled["flash_bytes"] == found["image"]["flash_bytes"]
    assert profiled["arena_bytes"] == found["arena_bytes"]


@pytest.mark.tools
def test_without_a_compiler_the_arena_is_shown_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = result_of(capsys, "memory", DIGITS, "--board", BOARD)
    assert found["stack"] is None and found["image"] is None
    assert found["arena_bytes"] > 0
    assert "arm-none-eabi-gcc" in found["notes"][0]


def test_the_model_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = shutil.copy(DIGITS, tmp_path / "m.tflite")
    assert main(["memory", str(model), "--board", BOARD, "--svg", str(model)]) == 1
    assert "give another name" in capsys.readouterr().err
