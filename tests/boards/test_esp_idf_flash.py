"""What ESP-IDF built is flashed by esptool, or by Espressif's OpenOCD: the exact arguments."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.probe.failures import failure

BOARD = "esp32c3_devkitm"
# As ESP-IDF 5 writes it for a chip whose loader begins at address 0.
LIST: dict[str, Any] = {
    "write_flash_args": ["--flash_mode", "dio", "--flash_size", "2MB", "--flash_freq", "80m"],
    "flash_files": {
        "0x10000": "selftest.bin",
        "0x0": "bootloader/bootloader.bin",
        "0x8000": "partition_table/partition-table.bin",
    },
    "app": {"offset": "0x10000", "file": "selftest.bin", "encrypted": "false"},
    "extra_esptool_args": {"after": "hard_reset", "stub": True, "chip": "esp32c3"},
}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A project of ESP-IDF, after ``idf.py build``; the port is this process's terminal."""
    build = tmp_path / "project" / "build"
    for name in LIST["flash_files"].values():
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_bytes(b"\xe9")
    (build / "flasher_args.json").write_text(json.dumps(LIST))
    return build


def esptool_argv(build: Path, port: str) -> list[str]:
    return [
        *("esptool", "--chip", "esp32c3", "--port", port, "--baud", "460800", "write_flash"),
        *("--flash_mode", "dio", "--flash_size", "2MB", "--flash_freq", "80m"),
        *("0x0", str(build / "bootloader" / "bootloader.bin")),
        *("0x8000", str(build / "partition_table" / "partition-table.bin")),
        *("0x10000", str(build / "selftest.bin")),
    ]


def test_the_arguments(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the project and of its build folder alike."""

    def flashing(*arguments: str) -> list[str]:
        assert main(["project", "flash", *arguments, "--dry-run"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return shlex.split(line)

    for place in (built, built.parent):
        assert flashing(str(place)) == esptool_argv(built, "PORT")
    assert flashing(str(built), "--port", "/dev/ttyUSB7") == esptool_argv(built, "/dev/ttyUSB7")
    closed = "gdb_port disabled; tcl_port disabled; telnet_port disabled"
    program = f"program_esp_bins {{{built}}} flasher_args.json verify reset exit"
    config = ["-f", "board/esp32c3-builtin.cfg", "-c", closed, "-c", program]
    wanted = [str(built), "--probe", "openocd_esp"]
    assert flashing(*wanted) == ["openocd", *config]
    serial = ["-c", "adapter serial 60:55:F9:AA"]
    assert flashing(*wanted, "--serial", "60:55:F9:AA") == ["openocd", *serial, *config]


def test_a_fake_esptool_gets_them(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, seen = tmp_path / "bin", tmp_path / "argv"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    first, second = os.openpty()
    port = os.ttyname(second)
    argv = ["project", "flash", str(built), "--port", port]
    try:
        assert main(argv) == 1
        assert "pip install 'esptool>=5'" in capsys.readouterr().err
        tool = folder / "esptool"
        tool.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" > '{seen}'\n")
        tool.chmod(0o755)
        assert main(argv) == 0
        assert "selftest.elf is on the board" in capsys.readouterr().out
        assert seen.read_text().splitlines()[1:] == esptool_argv(built, port)[1:]
    finally:
        os.close(first)
        os.close(second)
    assert main(argv[:3]) == 1
    assert f"no serial port is known for {BOARD}" in capsys.readouterr().err


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in LIST.items() if name != key}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (_without("app"), "is not as ESP-IDF writes it (KeyError: 'app'); run: idf.py build"),
        ([1], "is not as ESP-IDF writes it (TypeError"),
        ({**LIST, "flash_files": [1]}, "is not as ESP-IDF writes it (AttributeError"),
        ({**LIST, "write_flash_args": ["--encrypt"]}, "'--encrypt', which is left to ESP-IDF"),
        ({**LIST, "flash_files": {"0x0": "absent.bin"}}, "absent.bin is missing, which flasher_"),
        ({**LIST, "flash_files": {"0": "selftest.bin"}}, "may take its characters for commands"),
        ({**LIST, "flash_files": {"0x0": "[exec x].bin"}}, "may take its characters for commands"),
        ({**LIST, "extra_esptool_args": {"chip": "esp32s3"}}, "is for the chip 'esp32s3', which"),
    ],
)
def test_a_list_that_is_wrong_is_one_sentence(
    found: object, says: str, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built / "flasher_args.json").write_text(json.dumps(found))
    assert main(["project", "flash", str(built), "--dry-run"]) == 1
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and says in error


def test_what_the_programs_say() -> None:
    """The words of esptool 5.6 without its port; the others are those of the sources."""
    for said, meaning in (
        ("Could not open /dev/ttyUSB0, the port is busy or doesn't exist.", "busy or absent"),
        ("Failed to connect to ESP32-C3: No serial data received.", "BOOT button"),
        ("Can't find board/esp32c3-builtin.cfg", "is not Espressif's"),
        ('invalid command name "program_esp_bins"', "pip install 'esptool>=5'"),
    ):
        assert meaning in str(failure("flashing b", "tool", said, 1))


@pytest.mark.tools
def test_the_real_esptool_reads_the_arguments(built: Path) -> None:
    """It opens the port only after it has understood all of them."""
    if shutil.which("esptool") is None:
        pytest.skip("esptool is not installed; install it with: pip install 'esptool>=5'")
    argv = esptool_argv(built, str(built / "no-port"))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "Could not open" in done.stdout + done.stderr


def test_a_board_file_of_the_user_knows_another_chip(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boards = tmp_path / "boards"
    boards.mkdir()
    text = load_board(BOARD).source.replace(BOARD, "mine").replace("ESP32-C3", "ESP32-C6")
    (boards / "mine.toml").write_text(text.replace("esp32c3", "esp32c6"))
    other = {**LIST, "extra_esptool_args": {"chip": "esp32c6"}}
    (built / "flasher_args.json").write_text(json.dumps(other))
    argv = ["project", "flash", str(built), "--dry-run"]
    assert main(argv) == 1
    assert "set UTVM_BOARDS to the folder of your board file" in capsys.readouterr().err
    monkeypatch.setenv("UTVM_BOARDS", str(boards))
    assert main(argv) == 0
    assert "esptool --chip esp32c6 " in capsys.readouterr().out
