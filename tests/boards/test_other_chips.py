"""Boards that nobody here has: a file for each, and everything but the chip works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_probe import FakeTool, dry

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.probe import choose_link, flash_image
from utvm_deploy.device.probe.server import server_commands
from utvm_deploy.project import Image, build_image

DIGITS = Path(__file__).parents[2] / "models" / "digits.tflite"
ELF = Path("/images/image.elf")


@pytest.fixture
def chips() -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")


@pytest.mark.usefixtures("chips")
@pytest.mark.parametrize(
    ("name", "flash", "ram", "link"),
    [
        ("nucleo_h743zi", 0x0800_0000, 0x2400_0000, "monitor"),
        ("nrf52840dk", 0, 0x2000_0000, "debug"),
    ],
)
def test_an_image_builds_for_the_chip(name: str, flash: int, ram: int, link: str) -> None:
    board = load_board(name)
    image = build_image(None, board)
    assert min(address for address, _ in image.load_segments) == flash
    assert image.symbols["utvm_workspace"] >> 24 == ram >> 24
    assert choose_link(board) == link


@pytest.mark.usefixtures("chips")
def test_a_debug_link_needs_neither_port_nor_uart(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(DIGITS), "--board", "nrf52840dk", "--dry-run", "--probe", "pyocd"]
    assert main(arguments) == 0
    *_, flash, server = capsys.readouterr().out.splitlines()
    assert flash.startswith("pyocd flash --no-wait --target nrf52840 ")
    assert server.startswith("pyocd gdbserver --no-wait --target nrf52840 --persist --port ")


@pytest.mark.usefixtures("chips")
def test_the_command_line_takes_either_link(capsys: pytest.CaptureFixture[str]) -> None:
    def last(*arguments: str) -> str:
        argv = ["verify", str(DIGITS), "--board", "nucleo_h743zi", "--dry-run", *arguments]
        assert main(argv) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last().startswith("openocd -f board/st_nucleo_h743zi.cfg -c 'gdb_port disabled; ")
    assert " -c 'program {" in last()
    assert last("--link", "debug", "--serial", "0042").startswith(
        "openocd -c 'bindto 127.0.0.1' -c 'adapter serial 0042' "
        "-f board/st_nucleo_h743zi.cfg -c 'gdb_port "
    )
    assert last("--link", "debug", "--probe", "jlink").startswith(
        "JLinkGDBServerCLExe -LocalhostOnly 1 -device"
    )


@pytest.mark.usefixtures("chips")
def test_what_is_installed_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("nrf52840dk")
    tool = FakeTool(tmp_path, "openocd", "exit 0")
    monkeypatch.setenv("PATH", str(tool.folder))
    flash_image(Image(ELF, board))
    assert tool.argv()[:2] == ["-f", "board/nordic_nrf52_dk.cfg"]
    assert server_commands(board, None).name == "openocd"
    # A dry run shows the same commands on every computer.
    assert dry(flash_image, Image(ELF, board))[-1][0] == "JLinkExe"


@pytest.mark.usefixtures("chips")
def test_all_chips_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "--json"]) == 0
    names = {board["name"] for board in json.loads(capsys.readouterr().out)["boards"]}
    assert {"nucleo_h743zi", "nrf52840dk", "stm32f746g_disco"} <= names
