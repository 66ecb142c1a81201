"""Probes: the argument lists that programs are started with, and what a missing piece is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from utvm_deploy import process
from utvm_deploy.board import load_board
from utvm_deploy.errors import BoardError, MissingTool, NoDevice, ProbeError
from utvm_deploy.probe import flash_image, start
from utvm_deploy.probe.argv import emulator_argv
from utvm_deploy.project import Image

ELF = Path("/images/image.elf")

QEMU_ARGV = [
    "qemu-system-arm",
    *("-machine", "mps2-an500"),
    *("-icount", "shift=6,sleep=off"),
    *("-nodefaults", "-display", "none", "-monitor", "none"),
    *("-chardev", "stdio,id=link,signal=off", "-serial", "chardev:link"),
    *("-kernel", "/images/image.elf"),
    *("-device", "loader,addr=0x20001234,data=0x0badcafe,data-len=4"),
]
OPENOCD_ARGV = [
    "openocd",
    *("-f", "board/stm32f746g-disco.cfg"),
    *("-c", "program /images/image.elf verify reset exit"),
]
OPENOCD_SERIAL_ARGV = [
    "openocd",
    *("-c", "adapter serial 0670FF"),
    *("-f", "board/stm32f746g-disco.cfg"),
    *("-c", "program /images/image.elf verify reset exit"),
]
OBJCOPY_ARGV_START = ["arm-none-eabi-objcopy", "-O", "binary", "/images/image.elf"]
ST_FLASH_ARGV = ["st-flash", "--reset", "write", "/images/image.bin", "0x08000000"]
CUBE_ARGV = [
    "STM32_Programmer_CLI",
    *("-c", "port=SWD", "mode=UR", "-w", "/images/image.elf", "-v", "-rst"),
]


@pytest.fixture
def disco() -> Image:
    return Image(ELF, load_board("stm32f746g_disco"))


def dry(action: object, *args: object, **options: object) -> list[list[str]]:
    """The commands that ``action`` would run."""
    commands: list[Sequence[str]] = []
    with process.dry_run(commands.append):
        action(*args, **options)  # type: ignore[operator]
    return [list(argv) for argv in commands]


def test_the_emulators_arguments() -> None:
    board = load_board("mps2_an500")
    assert emulator_argv(board, ELF, 0x2000_1234, 0x0BADCAFE) == QEMU_ARGV
    assert emulator_argv(board, ELF, None, 0) == QEMU_ARGV[:-2]
    with pytest.raises(BoardError, match="host is not an emulated board"):
        emulator_argv(load_board("host"), ELF, None, 0)


def test_flashing_arguments(disco: Image) -> None:
    assert dry(flash_image, disco) == [OPENOCD_ARGV]
    assert dry(flash_image, disco, serial="0670FF") == [OPENOCD_SERIAL_ARGV]
    assert dry(flash_image, disco, probe="stm32cubeprogrammer") == [CUBE_ARGV]
    objcopy, st_flash = dry(flash_image, disco, probe="st_flash")
    assert objcopy[:-1] == OBJCOPY_ARGV_START
    assert st_flash == ST_FLASH_ARGV


def test_the_bench_file_names_the_probe(disco: Image, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text('[boards.stm32f746g_disco]\nprobe_serial = "0670FF"\n')
    assert dry(flash_image, disco) == [OPENOCD_SERIAL_ARGV]


def test_every_real_board_can_be_flashed_with_each_of_its_probes() -> None:
    for name in ("stm32f746g_disco", "nucleo_f746zg"):
        board = load_board(name)
        assert len(board.probe.kinds) >= 2
        for kind in board.probe.kinds:
            *_, argv = dry(flash_image, Image(ELF, board), probe=kind)
            assert any("/images/image." in argument for argument in argv)
            assert not any("{image}" in argument for argument in argv)


def test_a_probe_that_cannot_choose_says_so(disco: Image) -> None:
    with pytest.raises(BoardError, match="cannot choose a probe by its serial number '0670FF'"):
        flash_image(disco, probe="stm32cubeprogrammer", serial="0670FF")


def test_an_unknown_probe_gets_a_suggestion(disco: Image) -> None:
    with pytest.raises(BoardError, match=r"has no probe 'openocd2'; did you mean 'openocd'\?"):
        flash_image(disco, probe="openocd2")


def test_what_runs_here_is_not_flashed() -> None:
    with pytest.raises(ProbeError, match="mps2_an500 is started on this computer, not flashed"):
        flash_image(Image(ELF, load_board("mps2_an500")))


def test_a_missing_program_names_the_package(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool) as caught:
        flash_image(disco)
    assert str(caught.value) == (
        "openocd is not installed; it is needed to flash boards. "
        "Install it: sudo apt install openocd"
    )


def test_a_failing_program_is_quoted(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openocd = tmp_path / "openocd"
    openocd.write_text('#!/bin/sh\necho "Info: hello"\necho "Error: open failed" >&2\nexit 1\n')
    openocd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ProbeError, match=r"with openocd failed: Error: open failed; is the board"):
        flash_image(disco)


def test_a_real_board_needs_a_port(disco: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", None)  # nothing may be flashed first
    with pytest.raises(NoDevice) as caught:
        start(disco.board, disco)
    assert str(caught.value) == (
        "no serial port is known for stm32f746g_disco; give port=..., or write "
        '[boards.stm32f746g_disco] port = "/dev/ttyACM0" into bench.toml'
    )
    with pytest.raises(NoDevice, match="serial port /dev/ttyNOWHERE is not there"):
        start(disco.board, disco, port="/dev/ttyNOWHERE")


def test_a_missing_emulator_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from utvm_deploy.project import build_image

    board = load_board("mps2_an500")
    image = build_image(None, board)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="sudo apt install qemu-system-arm"):
        start(board, image)


def test_an_emulator_that_refuses_leaves_last_words(tmp_path: Path) -> None:
    from utvm_deploy.errors import LinkError
    from utvm_deploy.link.monitor import MonitorLink
    from utvm_deploy.project import build_image

    text = load_board("mps2_an500").source.replace('"mps2-an500"', '"mps2-an5OO"')
    path = tmp_path / "mps2_an500.toml"
    path.write_text(text)
    board = load_board(path)
    with start(board, build_image(None, board)) as running:
        with pytest.raises(LinkError):
            MonitorLink(running.stream).hello()
        assert "unsupported machine type" in running.last_words()
    assert "unsupported machine type" in running.last_words()
