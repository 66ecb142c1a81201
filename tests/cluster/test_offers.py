"""What a machine offers: the boards of its desk, and those that its programs can run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from utvm_deploy.base.errors import BoardError
from utvm_deploy.service.cluster.offers import (
    Offer,
    board_resource,
    inventory,
    offers,
    resources,
    usable_cores,
)

DESK = """
[[boards.nucleo_f746zg]]
probe_serial = "0670FF01"
[[boards.nucleo_f746zg]]
probe_serial = "0670FF02"
[boards.no_such_board]
port = "/dev/ttyACM0"
[boards.host]
port = "/dev/ttyACM1"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of programs; each file in it is a program that is installed."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    return folder


def install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_boards_of_the_desk_and_what_is_installed(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = tmp_path / "bench.toml"
    desk.write_text(DESK)
    monkeypatch.setenv("UTVM_BENCH", str(desk))
    install(programs, "cmake", "make", "cc", "arm-none-eabi-gcc")
    found = inventory()
    assert Offer("nucleo_f746zg", 2, "desk") in found.offers
    # The host is one board, however many lines of the file name it.
    assert Offer("host", usable_cores(), "host") in found.offers
    assert [one.board for one in found.offers] == ["host", "nucleo_f746zg"]
    assert "qemu-system-arm is not installed" in found.missing["mps2_an500"]
    assert "no board 'no_such_board'" in found.missing["no_such_board"]
    # It is on no desk here: that is nothing to mend.
    assert "stm32f746g_disco" not in found.missing
    install(programs, "qemu-system-arm")
    assert Offer("mps2_an500", usable_cores(), "emulator") in offers()


def test_without_a_compiler_nothing_is_offered(programs: Path) -> None:
    install(programs, "cmake", "make", "qemu-system-arm")
    assert offers() == ()


def test_a_wrong_bench_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_BENCH", str(tmp_path / "absent.toml"))
    with pytest.raises(BoardError, match=r"absent\.toml"):
        offers()


def test_resources() -> None:
    offered = [Offer("host", 4, "host"), Offer("nucleo_f746zg", 2, "desk")]
    assert resources(offered, 4) == {"core": 4.0, "board:host": 4.0, "board:nucleo_f746zg": 2.0}
    assert board_resource("host") == "board:host"


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
