"""Building and running Zephyr applications as a user does: plain CMake, and QEMU's console."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.device.probe.argv import emulator_argv
from utvm_deploy.project.zephyr_build import find_zephyr

BUILD_TIMEOUT_S = 900
# Until the application has printed what it has to say.
CONSOLE_TIMEOUT_S = 60


def zephyr_board(name: str) -> Board:
    """The board with Zephyr's template first; skips where its emulator is not installed."""
    board = with_template(load_board(name), "zephyr")
    if board.emulator and not shutil.which(board.emulator.program):
        pytest.skip(f"{board.emulator.program} is not installed")
    return board


def build_by_cmake(source: Path, build: Path, *options: str) -> Path:
    """The image of an application, by nothing but CMake."""
    python = f"-DPython3_EXECUTABLE={find_zephyr().python}"
    for argv in (
        ["cmake", "-GNinja", "-S", str(source), "-B", str(build), python, *options],
        ["cmake", "--build", str(build)],
    ):
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "zephyr" / "zephyr.elf"


def console_of(board: Board, elf: Path, until: str) -> str:
    """What the image prints, up to and with the line that holds ``until``."""
    child = subprocess.Popen(
        emulator_argv(board, elf, None, 0),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    # A silent image must not hang the test.
    timer = threading.Timer(CONSOLE_TIMEOUT_S, child.kill)
    timer.start()
    text = ""
    try:
        assert child.stdout is not None
        for line in child.stdout:
            text += line
            if until in line:
                break
    finally:
        timer.cancel()
        child.kill()
        child.communicate()
    return text
