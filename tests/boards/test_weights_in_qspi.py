"""Weights in QSPI flash, code in internal flash: the image, its flashing, and that it runs.

QEMU's mps2-an500 has a second memory at 0x60000000, which stands for the QSPI flash.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import utvm_deploy
from utvm_deploy.base.errors import CompileError, ProbeError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.device.doctor.desk import desk_checks
from utvm_deploy.device.probe import flash_image
from utvm_deploy.project import Image, build_image, check_fits
from utvm_deploy.project.fit import overflow_sentence

MODEL = Path(__file__).parents[2] / "models" / "digits.tflite"
FILE = Path(__file__).parent / "qspi" / "h743_qspi.toml"
SHIPPED = Path(__file__).parents[2] / "boards"
QSPI, INTERNAL, DTCM = 0x9000_0000, 0x0800_0000, 0x2000_0000


@pytest.fixture(scope="module")
def board() -> Board:
    return load_board(FILE)


@pytest.fixture(scope="module")
def compiled(board: Board) -> CompiledModel:
    return utvm_deploy.compile(MODEL, board=board)


@pytest.fixture(scope="module")
def image(compiled: CompiledModel, board: Board) -> Image:
    return build_image(compiled, board)


@pytest.mark.tools
def test_each_part_of_the_image_is_where_the_board_file_says(
    image: Image, compiled: CompiledModel
) -> None:
    with image.elf.open("rb") as file:
        at = {one.name: (one["sh_addr"], one["sh_size"]) for one in ELFFile(file).iter_sections()}
    assert at[".vectors"][0] == INTERNAL
    assert at[".text"][0] >> 20 == INTERNAL >> 20
    assert at[".weights"] == (QSPI, compiled.weights_bytes)
    assert at[".stack"][0] == DTCM and at[".data"][0] >> 20 == DTCM >> 20
    assert image.symbols["reset_handler"] >> 20 == INTERNAL >> 20
    assert image.symbols["utvm_workspace"] == 0x2400_0000  # not the SDRAM
    # The flashing program finds both in the file; nothing else is stored.
    stored = {address >> 28 for address, _ in image.load_segments}
    assert stored == {INTERNAL >> 28, QSPI >> 28}
    config = (image.elf.parents[1] / "template" / "board_config.h").read_text()
    assert "REGION(0x90000000u, 0x94000000u, UTVM_RIGHT_READ | UTVM_RIGHT_EXECUTE)" in config


@pytest.mark.tools
def test_a_program_that_writes_one_piece_is_refused(image: Image) -> None:
    with pytest.raises(ProbeError) as caught:
        flash_image(image, probe="st_flash")
    assert str(caught.value) == (
        "st_flash writes one piece of flash, and the image is in flash and qspi; take another "
        "probe (openocd)"
    )


def test_doctor_says_who_must_initialize_it(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    (check,) = (
        one
        for one in desk_checks(board, port=None, serial=None, builds=False)
        if one.what == "memories"
    )
    assert check.ok and check.found is not None
    assert check.found == (
        "code in flash, weights in qspi, data and stack in dtcm, workspace in axi_sram; h743_qspi "
        "has the weights in qspi, which the image does not initialize; your boot loader must "
        "(utvm docs reference/boards)"
    )
    check_fits(needs(1000), board)
    assert "h743_qspi has the weights in qspi" in caplog.text


def needs(weights_bytes: int) -> MemoryNeeds:
    return MemoryNeeds("m", arena_bytes=1000, weights_bytes=weights_bytes, stack_bytes=0)


def test_each_region_is_judged_alone(board: Board, tmp_path: Path) -> None:
    check_fits(needs(60 << 20), board)
    with pytest.raises(CompileError, match=r"has 67,108,864 bytes for them \(67,108,864 bytes of"):
        check_fits(needs(65 << 20), board)
    path = tmp_path / FILE.name
    path.write_text(FILE.read_text().replace('weights = "qspi"\n', ""))
    unsaid = load_board(path)
    check_fits(needs(60 << 20), unsaid)  # they have no other place
    said = "ld: region `flash' overflowed by 1000 bytes"
    sentence = overflow_sentence(unsaid, said)
    assert sentence is not None and 'write weights = "qspi" in [project] of its board' in sentence
    sentence = overflow_sentence(board, said)
    assert sentence is not None and "write weights" not in sentence


@pytest.mark.emulator
def test_such_an_image_runs_and_its_weights_cost_what_their_region_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SHIPPED / "mps2_an500.toml").read_text().replace('"mps2_an500"', '"second"', 1)
    region = (
        '[[memory]]\nname = "qspi"\naddress = 0x6000_0000\nsize = 0x0100_0000\nkind = "flash"\n'
        "executable = true\nmiss_cycles = 350\n"
    )
    path = tmp_path / "second.toml"
    path.write_text(text.replace("\n[project]\n", f'\n{region}\n[project]\nweights = "qspi"\n', 1))
    assert main(["verify", str(MODEL), "--board", str(path), "--samples", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    assert main(["profile", str(MODEL), "--board", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["placement"]["weights"] == "qspi (flash)"
    figures = found["figures"]
    waiting = found["ticks"] - figures["core"]
    assert waiting > 350 * figures["dcache_misses_flash"] > 100_000
