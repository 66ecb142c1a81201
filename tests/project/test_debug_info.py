"""Source lines of addresses, against binutils' addr2line."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from utvm_deploy.boards.board import load_board
from utvm_deploy.project import build_image

pytestmark = pytest.mark.tools

ADDR2LINE = "arm-none-eabi-addr2line"


# One whose code begins at address 0, where the lines of discarded functions lie, and another.
@pytest.mark.parametrize("name", ["mps2_an386", "netduinoplus2"])
def test_lines_are_those_of_addr2line(name: str) -> None:
    if shutil.which(ADDR2LINE) is None:
        pytest.skip(f"{ADDR2LINE} is not installed")
    image = build_image(None, load_board(name))
    flash = image.board.main_flash
    functions = sorted(
        address & ~1
        for address in image.symbols.values()
        if address & 1 and flash.address <= address < flash.end
    )
    # Begins of functions, and places within.
    addresses = [*functions, *(address + 4 for address in functions)][::7]
    assert len(addresses) > 20
    argv = [ADDR2LINE, "-e", str(image.elf), *map(hex, addresses)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
    expected = [line.split(" (")[0].rpartition("/")[2] for line in told.splitlines()]
    known = [(a, e) for a, e in zip(addresses, expected, strict=True) if not e.startswith("?")]
    assert len(known) > 20
    assert [(hex(a), image.line_of(a)) for a, _ in known] == [(hex(a), e) for a, e in known]


def test_addresses_without_lines() -> None:
    image = build_image(None, load_board("mps2_an386"))
    assert image.line_of(0) is None
    assert image.line_of(0xF000_0000) is None
