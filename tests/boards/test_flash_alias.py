"""Code and constants read through the flash's other address: the image, and that it runs there.

The emulated STM32F405 has its flash at 0 too, as the STM32F7 has it on the ITCM bus.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from tiny_model import tiny_model

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.project import Image, build_image
from utvm_deploy.project.fit import overflow_sentence

VIEWS = [(), ("code",), ("constants",), ("code", "constants")]
ALIAS = 0x0020_0000
FLASH = 0x0800_0000


def board_with(name: str, folder: Path, through: tuple[str, ...], alias: int) -> Board:
    text = load_board(name).source
    listed = ", ".join(f'"{part}"' for part in through)
    if "through_alias" not in text:
        text = text.replace('kind = "flash"', f'kind = "flash"\nalias = {alias}', 1)
        text = text.replace("[project]\n", "[project]\nthrough_alias = []\n", 1)
    path = folder / f"{name}.toml"
    path.write_text(text.replace("through_alias = []", f"through_alias = [{listed}]"))
    return load_board(path)


def sections(image: Image) -> dict[str, int]:
    with image.elf.open("rb") as file:
        return {section.name: section["sh_addr"] for section in ELFFile(file).iter_sections()}


@pytest.mark.tools
@pytest.mark.parametrize("through", VIEWS, ids="+".join)
def test_the_image_is_written_in_one_piece_whatever_it_is_seen_through(
    through: tuple[str, ...], tmp_path: Path
) -> None:
    board = board_with("stm32f746g_disco", tmp_path, through, ALIAS)
    image = build_image(tiny_model(board), board)
    found = sections(image)
    assert found[".vectors"] == FLASH  # where the core looks for them at reset
    assert found[".text"] >> 20 == (ALIAS if "code" in through else FLASH) >> 20
    if through:
        assert found[".rodata"] >> 20 == (ALIAS if "constants" in through else FLASH) >> 20
    assert image.symbols["reset_handler"] >> 20 == found[".text"] >> 20
    # Every flashing program writes to the main address; nothing overlaps, and the gaps are small.
    end = FLASH
    for address, data in sorted(image.load_segments):
        assert end <= address < end + 64, hex(address)
        end = address + len(data)
    assert end - FLASH <= image.flash_bytes + 256


@pytest.mark.emulator
@pytest.mark.parametrize("through", VIEWS, ids="+".join)
def test_the_image_runs_through_the_alias(through: tuple[str, ...], tmp_path: Path) -> None:
    board = board_with("netduinoplus2", tmp_path, through, 0)
    with utvm_deploy.connect(board, timing="instructions") as device:
        device.start(build_image(tiny_model(board), board))
        run = device.symbol("tiny_run") & ~1
        assert (run < FLASH) == ("code" in through)
        # A module of ours calls into the image, and reads its constants.
        module = device.load_module(
            "extern unsigned utvm_crc32_of();\nvoid add(int *x) { x[0] += (int)sizeof(long); }"
        )
        x = device.tensor(np.array([38], np.int32))
        module["add"](x)
        assert x.numpy().tolist() == [42]
        regions = {(region.address, region.executable) for region in device.link.regions()}
        assert ((0, True) in regions) == bool(through)


def test_a_full_flash_is_told_by_its_own_name() -> None:
    board = load_board("stm32f746g_disco")
    said = "ld: region `flash_alias' overflowed by 1000 bytes"
    sentence = overflow_sentence(board, said)
    assert sentence is not None and "1,049,576 bytes of flash" in sentence


@pytest.mark.tools
def test_too_many_initial_values_are_told(tmp_path: Path) -> None:
    board = board_with("stm32f746g_disco", tmp_path, ("code",), ALIAS)
    small = tmp_path / "small.toml"
    small.write_text(
        board.source.replace("size = 0x0010_0000", "size = 0x0000_1000", 1).replace(
            'name = "stm32f746g_disco"', 'name = "small"'
        )
    )
    with pytest.raises(CompileError, match="bytes of flash, and small's region flash has 4,096"):
        build_image(None, load_board(small))
