"""--emulate: a real board's program on an emulated machine with the same core."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.twin import emulated_twin
from utvm_deploy.cli.main import main

MODEL = Path(__file__).parents[2] / "models" / "digits.tflite"
QSPI = Path(__file__).parent / "qspi" / "h743_qspi.toml"


def test_the_twin_has_the_boards_facts_at_the_machines_addresses() -> None:
    board, machine = load_board("nucleo_f746zg"), load_board("mps2_an500")
    twin = emulated_twin(board)
    assert (twin.name, twin.cpu) == ("nucleo_f746zg.twin", board.cpu)
    sizes = [(one.name, one.kind, one.size) for one in board.memory]
    assert [(one.name, one.kind, one.size) for one in twin.memory] == sizes
    assert [one.address for one in twin.memory] == [0, 0x2000_0000, 0x2004_0000]
    assert twin.project.uart == machine.project.uart and twin.data_ram.name == "dtcm"
    assert twin.emulator is not None and twin.emulator.twin_note == (
        "nucleo_f746zg.twin is emulated: nucleo_f746zg's program, with its sizes of memory, at the "
        "addresses of mps2_an500; cycles are modelled, with its clock, caches and costs of memory, "
        "not measured"
    )


def test_what_the_machine_lacks_is_said() -> None:
    twin = emulated_twin(load_board(QSPI))
    assert twin.emulator is not None
    note = twin.emulator.twin_note
    assert note.endswith("; sdram has 3,145,728 of its 8,388,608 bytes there")
    assert "qspi has 16,777,216 of its 67,108,864 bytes there" in note
    used = (twin.main_flash, twin.weights_flash(0), twin.data_ram, twin.main_ram)
    assert [one.name for one in used] == ["flash", "qspi", "dtcm", "axi_sram"]
    ends = sorted((one.address, one.end) for one in twin.memory)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_the_vectors_are_where_the_machine_reads_them() -> None:
    # Its flash is larger than the machine's memory there.
    board = load_board("mimxrt1060_evk")
    twin = emulated_twin(board)
    assert (board.vector_flash.size, twin.vector_flash.size) == (8 << 20, 4 << 20)
    assert twin.vector_flash.address == load_board("mps2_an500").vector_flash.address
    assert twin.emulator is not None
    assert twin.emulator.twin_note.endswith("flash has 4,194,304 of its 8,388,608 bytes there")


def test_boards_without_a_twin_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BoardError, match="mps2_an500 runs on this computer already; leave --emul"):
        emulated_twin(load_board("mps2_an500"))
    board = load_board("nucleo_f746zg")
    other = replace(board, cpu=replace(board.cpu, core="cortex-m33"))
    with pytest.raises(BoardError, match=r"no emulated machine has nucleo_f746zg's core .*-m7"):
        emulated_twin(other)
    command = ["verify", str(MODEL), "--emulate", "--board"]
    assert main([*command, "utvm://localhost/nucleo_f746zg"]) == 2
    assert "--emulate runs on this computer, and not on" in capsys.readouterr().err
    assert main([*command, "nucleo_f746zg", "--template", "zephyr"]) == 2
    assert "images of the template baremetal, not zephyr; leave" in capsys.readouterr().err
    assert main([*command, "nucleo_f746zg", "--port", "/dev/ttyACM0"]) == 1
    assert "nucleo_f746zg.twin runs on this computer" in capsys.readouterr().err


@pytest.mark.emulator
def test_a_profile_of_the_twin_says_whose_figures_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", str(MODEL), "--board", "nucleo_f746zg", "--emulate", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "nucleo_f746zg.twin is emulated" in printed.err
    assert found["is_modelled"] and found["twin"].startswith("nucleo_f746zg.twin is emulated")
    assert found["ticks_per_second"] == 216_000_000
    assert found["placement"]["stack"] == "dtcm (tcm)"


@pytest.mark.emulator
def test_a_twin_computes_in_double_precision() -> None:
    with utvm_deploy.connect(emulated_twin(load_board(QSPI)), timing="instructions") as device:
        module = device.load_module("void third(double *x) { x[0] = 1.0 / x[0]; }")
        x = device.tensor(np.array([3.0, 0.0], np.float64))
        module["third"](x)
        assert x.numpy()[0] == 1 / 3
