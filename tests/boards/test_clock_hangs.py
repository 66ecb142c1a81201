"""Start-up code of a real chip whose clock never comes: who is connected learns so.

The emulated STM32F405 has nothing where the clock's registers are, so it waits for the oscillator
as a board with a broken one would, and gives up.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.errors import LinkTimeout
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.link.gdb import debug_link as debug


@pytest.mark.emulator
def test_a_core_whose_oscillator_never_starts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    monkeypatch.setattr(debug, "DebugTimeouts", functools.partial(debug.DebugTimeouts, boot_s=4.0))
    real = load_board("stm32f746g_disco").source
    clock = real[real.index("[project.clock]") : real.index("[probe]")]
    text = load_board("netduinoplus2").source.replace(
        "clock_hz = 168_000_000", "clock_hz = 216_000_000"
    )
    path = tmp_path / "netduinoplus2.toml"
    path.write_text(text.replace('[project.clock]\ndriver = "none"\n', clock))
    board = load_board(path)
    with (
        utvm_deploy.connect(board, timing="instructions") as device,
        pytest.raises(LinkTimeout, match=r"asked to start.* was halted in clock_did_not_start"),
    ):
        _ = device.hello
