"""utvm boards --new: a board file from another one, with other sizes of memory."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from utvm_deploy.boards.board import board_names, load_board
from utvm_deploy.cli.main import main

PART = ["--device", "nRF52840"]
FROM = ["--from", "mps2_an500", "--core", "cortex-m7", "--clock", "216M"]
F746 = ["--new", "mine", "--from", "nucleo_f746zg"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are written."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_has_the_sizes_and_the_comments(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["boards", "--new", "mine", *FROM, "--flash", "512K", "--ram", "128K"]
    assert main([*argv, "--dry-run"]) == 0
    assert list(folder.iterdir()) == []
    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    board, base = load_board("mine.toml"), load_board("mps2_an500")
    sizes = {region.name: region.size for region in board.memory}
    assert sizes == {"flash": 512 << 10, "dtcm": 64 << 10, "ram": 128 << 10}
    assert (board.cpu, board.emulator) == (base.cpu, base.emulator)
    assert "512 KiB flash and 192 KiB RAM" in board.description
    assert (
        "# as on the STM32F746, whose DTCM serves data only" in (folder / "mine.toml").read_text()
    )
    found = json.loads(captured.out[captured.out.index("{") :])
    assert (found["file"], found["from"]) == ("mine.toml", "mps2_an500")
    # Never over a file.
    before = (folder / "mine.toml").read_bytes()
    assert main(argv) == 1
    assert "mine.toml exists" in capsys.readouterr().err
    assert (folder / "mine.toml").read_bytes() == before


@pytest.mark.parametrize("name", board_names())
def test_every_board_can_be_a_start(name: str) -> None:
    cpu = load_board(name, trust=True).cpu
    same = ["--core", cpu.core, "--clock", str(cpu.clock_hz)]
    assert main(["boards", "--new", "mine", "--from", name, *same]) == 0
    base, board = load_board(name, trust=True), load_board("mine.toml", trust=True)
    assert (board.memory, board.project, board.link) == (base.memory, base.project, base.link)


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--new", "mine"], 2, "--new needs --device PART"),
        (["--device", "RP2040"], 2, "--device goes with --new"),
        (["--new", "mine", "--from", "nucleo_f746zg"], 2, "confirm that yours is the same"),
        (["--new", "mine", "--from", "qemu_x86"], 2, "confirm that yours is the same"),
        (
            ["--new", "mine", "--device", "ESP32-C6"],
            1,
            "utvm bundle MODEL --board esp32c3_devkitm --format esp-idf, or: utvm boards --new "
            "NAME --from esp32c3_devkitm --core rv32imc --clock 160000000\n",
        ),
        (["--new", "mine", "--device", "esp32p4"], 1, "are in no board file: their cores have"),
        (["--new", "mine", "--device", "GD32VF103"], 1, "utvm bundle MODEL --board qemu_rv32imc\n"),
        (["--new", "mine", "--device", "CH32V003"], 1, "RV32IC and RV32E are not supported"),
        (["--new", "mine", "--device", "X", "--core", "ibex"], 1, "start with --from qemu_ibex, "),
        (["--new", "mine", "--device", "X", "--core", "rv32imac"], 1, "write rv32imc; the ext"),
        (["--new", "mine", "--device", "ESP32-S3"], 1, "Xtensa is not supported"),
        (["--new", "mine", "--device", "STM32H743ZG"], 1, "give --core CORE, --clock HZ, --flash"),
        ([*F746, "--device", "STM32H743ZI"], 1, "has the chip STM32F746?G or STM32F756?G, not"),
        ([*F746, "--core", "cortex-m7", "--clock", "480M"], 1, "makes 216 MHz, not 480"),
        ([*F746, "--core", "cortex-m4", "--clock", "216M"], 1, "has the core cortex-m7, not cort"),
        (
            ["--new", "mine", "--from", "qemu_rv32imc", "--core", "ibex", "--clock", "64M"],
            1,
            "has the core rv32imc, not ibex; start with --from qemu_ibex",
        ),
        ([*F746, "--core", "riscv32", "--clock", "216M"], 1, "RISC-V is not one core"),
        (["--new", "mine", "--device", "X", "--core", "i386"], 1, "--core i386 is not one of"),
        (["--new", "mine", *FROM, "--clock", "0"], 2, "'0' is not a clock"),
        (["--new", "mine", *FROM, "--clock", "168"], 2, "give a unit, such as 168M"),
        (["--new", "mine", *FROM, "--ram", "1K@x"], 2, "'x' is not an address"),
        (["--new", "mine", *FROM, "--ram", "1K@0x0"], 1, "leave the address out"),
        (["--flash", "1K"], 2, "--flash goes with --new"),
        (["--new", "mine", *FROM, "--connected"], 2, "--new goes without NAME"),
        (["--new", "mine", *FROM, "--ram", "0"], 2, "0 bytes"),
        (["--new", "mine", *FROM, "--ram", "1Q"], 2, "'1Q' is not a size"),
        (["--new", "mine", *FROM, "--flash", "4096M"], 1, "mine.toml: memory[0].size: "),
        (["--new", "../mine", *FROM], 1, "the name '../mine' must be letters"),
        (["--new", "mine", "--from", "mps2_an50"], 1, "did you mean 'mps2_an500'?"),
        (["--new", "mine", *PART, "--core", "cortex-m7"], 1, "m7; leave --core and --clock out\n"),
        (["--new", "mine", *PART, "--clock", "1M"], 1, "not 1; leave --core and --clock out, or"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    argv: list[str], code: int, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", *argv]) == code
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_part_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "--new", "mine", "--device", "STM32H743ZIT6"]) == 0
    base, board = load_board("nucleo_h743zi"), load_board("mine.toml")
    assert (board.cpu, board.memory, board.project) == (base.cpu, base.memory, base.project)
    # What is right for that chip alone is said, there and in the file.
    said = capsys.readouterr().out
    for text in (said, Path("mine.toml").read_text()):
        assert "UART (stm32_usart), timer (dwt), caches, addresses of memory" in text


@pytest.mark.parametrize(
    ("core", "timer", "dsp"), [("cortex-m0plus", "systick", False), ("cortex-m4", "dwt", True)]
)
def test_a_chip_that_nobody_knows_gets_what_is_right_for_its_core(
    core: str, timer: str, dsp: bool
) -> None:
    argv = ["boards", "--new", "mine", "--device", "X77", "--core", core, "--clock", "16M"]
    assert main([*argv, "--flash", "512K@0x08000000", "--ram", "128K@0x20000000"]) == 0
    board = load_board("mine.toml")
    assert [(one.address, one.size) for one in board.memory] == [
        (0x0800_0000, 512 << 10),
        (0x2000_0000, 128 << 10),
    ]
    assert (board.cpu.core, board.cpu.clock_hz, board.cpu.dsp) == (core, 16_000_000, dsp)
    assert board.project.timer is not None and board.project.timer.driver.name == timer
    assert board.project.clock is not None and board.project.clock.name == "none"
    assert board.link.kinds == ("debug",)


def test_memory_that_start_up_cannot_use_is_said_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["boards", "--new", "mine", "--device", "X77", "--core", "cortex-m4", "--clock", "16M"]
    assert main([*argv, "--flash", "1M@0x90000000", "--ram", "128K@0x20000000"]) == 0
    said = capsys.readouterr().out
    assert "mine has code in flash, which is flash that the core cannot start from" in said


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("cortex-m7\n216M\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["boards", *F746]) == 0
    assert load_board("mine.toml").cpu == load_board("nucleo_f746zg").cpu
