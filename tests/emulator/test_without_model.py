"""Without the cycle model nothing is counted in another unit, unless it is asked for."""

from __future__ import annotations

import argparse
import errno
import os
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.errors import BuildError, ProbeError, SystemRefused
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import build_parser, main
from utvm_deploy.device.connection import Connection
from utvm_deploy.device.probe.cycle_model import CycleModelFiles, cycle_model_arguments
from utvm_deploy.targets.emulator.plugin import build_plugin
from utvm_deploy.tuning.measuring.place import _result

DIGITS = data_dir("models") / "digits.tflite"
BOARD = load_board("mps2_an386")
#: What GCC's assembler says on a full disk.
FULL = "cc1.s: Fatal error: can't write 15 bytes to section .text of cc1.o: No space left on device"


def fake_compiler(folder: Path, says: str) -> str:
    """A PATH whose ``cc`` fails with these words."""
    tool = folder / "cc"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {{ echo "{says}" >&2; exit 1; }}\n')
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.tools
@pytest.mark.parametrize(
    ("says", "kind", "words"),
    [
        (FULL, SystemRefused, "No space left on device"),
        ("plugin.c:1: fatal error: qemu.h: No such file", BuildError, "qemu.h: No such file"),
        ("", BuildError, "exit status 1"),
    ],
)
def test_a_compiler_that_fails(
    says: str,
    kind: type[BuildError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", fake_compiler(tmp_path, says))
    with pytest.raises(kind, match=words) as found:
        build_plugin("7.2.22")
    assert type(found.value) is kind


@pytest.mark.tools
def test_a_cache_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "emulator").write_text("a file where a folder is needed")
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path))
    with pytest.raises(SystemRefused, match=os.strerror(errno.EEXIST)):
        build_plugin("7.2.22")


def test_the_cause_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_program: str) -> Path:
        raise SystemRefused("building failed: No space left on device")

    monkeypatch.setattr("utvm_deploy.device.probe.cycle_model.plugin_for", refuse)
    monkeypatch.setattr(process, "find_tool", str)
    files = CycleModelFiles()
    with pytest.raises(ProbeError, match=r"No space left on device.*--timing instructions"):
        cycle_model_arguments(BOARD, {}, files)
    files.close()


@pytest.mark.emulator
@pytest.mark.parametrize("verb", ["run", "tune"])
def test_verbs_end_with_the_cause(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plugin(_program: str) -> Path:
        return build_plugin("7.2.22")

    monkeypatch.setattr("utvm_deploy.device.probe.cycle_model.plugin_for", plugin)
    monkeypatch.setenv("PATH", fake_compiler(tmp_path, FULL))
    records = tmp_path / "records.jsonl"
    more = {"run": [], "tune": ["--trials", "1", "--records", str(records)]}[verb]
    assert main([verb, str(DIGITS), "--board", BOARD.name, *more]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not records.exists()
    if verb == "run":
        assert main([verb, str(DIGITS), "--board", BOARD.name, "--timing", "instructions"]) == 0
        assert " instructions on mps2_an386" in capsys.readouterr().out


def test_an_image_that_counts_something_else() -> None:
    """As an older server's worker, which starts the emulator without the model, would answer."""
    launcher = SimpleNamespace(with_cycle_model=True)
    hello = SimpleNamespace(tick_unit="instructions")
    with pytest.raises(ProbeError, match="counts modelled cycles, and what runs there counts"):
        Connection(BOARD, cast(Any, launcher))._check_unit(cast(Any, hello))
    launcher.with_cycle_model = False
    Connection(BOARD, cast(Any, launcher))._check_unit(cast(Any, hello))


def test_no_record_says_that_a_candidate_was_at_fault(tmp_path: Path) -> None:
    done = process.Completed(("cc",), 1, "", FULL)
    future: Future[Any] = Future()
    future.set_exception(build_error("module 'm' does not compile", done, tmp_path))
    with pytest.raises(SystemRefused, match="No space left on device"):
        _result(future)
    other: Future[Any] = Future()
    refused = process.Completed(("cc",), 1, "", "m.c:1: error: no")
    other.set_exception(build_error("module 'm' does not compile", refused, tmp_path))
    assert _result(other).error == "compile error"  # type: ignore[union-attr]


def test_every_verb_that_counts_has_the_option() -> None:
    """Verbs that reach a board and have no --timing tell no ticks, or measure real boards alone."""
    (verbs,) = (
        action.choices
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    options = {
        name: {option for action in parser._actions for option in action.option_strings}
        for name, parser in verbs.items()
    }
    reaching = {name for name, found in options.items() if "--link" in found}
    timed = {name for name, found in options.items() if "--timing" in found}
    assert reaching - timed == {"verify", "eval", "reproduce", "silicon"}
    assert timed - reaching == {"bundle", "quantize"}
