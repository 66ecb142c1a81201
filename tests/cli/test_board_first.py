"""A board that cannot be reached is told before anything is compiled or built for it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

import utvm_deploy
from utvm_deploy.base.errors import MissingTool, NoDevice
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import build_parser, main
from utvm_deploy.compiler.stages.pipeline import compile_model

DIGITS = str(data_dir("models") / "digits.tflite")
BOARD = "stm32f746g_disco"
VERBS = {
    "run": ["run", DIGITS],
    "verify": ["verify", DIGITS],
    "eval": ["eval", DIGITS, "--data", "none.npz"],
    "profile": ["profile", DIGITS],
    "bench": ["bench", DIGITS],
    "tune": ["tune", DIGITS, "--trials", "1", "--records", "r.jsonl"],
}


@pytest.fixture(autouse=True)
def nothing_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither compiled nor built, with nothing plugged in and no bench file."""

    def made(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("something was compiled or built")

    # A module that is first imported now would keep the patched name after this test.
    for verb in VERBS:
        build_parser(verb)
    monkeypatch.setattr("utvm_deploy.api.compile_function.compile_model", made)
    monkeypatch.setattr("utvm_deploy.api.bench_models.compile_model", made)
    monkeypatch.setattr("utvm_deploy.api.tune_function.workload", made)
    monkeypatch.setattr("utvm_deploy.device.device.build_image", made)
    monkeypatch.setattr("utvm_deploy.device.connection.build_image", made)
    monkeypatch.setattr("utvm_deploy.project.build._build", made)
    monkeypatch.setattr("utvm_deploy.device.probe.detect.serial_ports", list)
    monkeypatch.chdir(tmp_path)
    for name in ("UTVM_PORT", "UTVM_PROBE", "UTVM_SERIAL", "UTVM_BENCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("verb", VERBS)
def test_no_port(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERBS[verb], "--board", BOARD]) == 1
    *_, error = capsys.readouterr().err.splitlines()  # behind what a verb says that it does
    assert error.startswith(f"error: no serial port is known for {BOARD}"), error


@pytest.mark.parametrize("verb", VERBS)
def test_a_port_that_is_not_there(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERBS[verb], "--board", BOARD, "--port", "/dev/ttyACM99"]) == 1
    assert "serial port /dev/ttyACM99 is not there" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_a_port_that_is_a_file(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("keep")
    assert main([*VERBS[verb], "--board", BOARD, "--port", str(file)]) == 1
    assert f"{file} is not a serial port; give a device's name" in capsys.readouterr().err
    assert file.read_text() == "keep"


@pytest.mark.parametrize("verb", VERBS)
def test_no_programmer(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    argv = [*VERBS[verb], "--board", BOARD, "--port", "socket://127.0.0.1:1"]
    assert main([*argv, "--probe", "openocd"]) == 1
    assert "error: openocd is not installed" in capsys.readouterr().err


def test_no_emulator(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["run", DIGITS, "--board", "mps2_an500"]) == 1
    assert "error: qemu-system-arm is not installed" in capsys.readouterr().err


def test_a_project_is_not_built_for_a_missing_programmer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["project", "create", DIGITS, "tree", "--board", BOARD]) == 0
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["project", "flash", "tree", "--probe", "openocd"]) == 1
    assert "error: openocd is not installed" in capsys.readouterr().err


def test_in_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_model(DIGITS, utvm_deploy.load_board(BOARD))
    with utvm_deploy.connect(BOARD) as device:
        with pytest.raises(NoDevice, match="no serial port is known"):
            device.load(compiled)
        with pytest.raises(NoDevice, match="no serial port is known"):
            device.allocate(16)
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        utvm_deploy.connect(BOARD, port="socket://127.0.0.1:1", probe="openocd") as device,
        pytest.raises(MissingTool, match="openocd is not installed"),
    ):
        device.load(compiled)
