"""The page of cores and boards says what the data say, and messages lead to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import board_names, board_of_device, load_board
from utvm_deploy.cli.doc_pages import pages, search
from utvm_deploy.targets.table import CORES
from utvm_deploy.targets.unsupported import PAGE, UNSUPPORTED, unsupported

TEXT = pages()[PAGE].text


def test_every_core_is_listed() -> None:
    assert {name for name in CORES if f"`{name}`" not in TEXT} == set()


def test_every_part_is_listed_with_its_board() -> None:
    for name in board_names():
        devices = load_board(name).devices
        if devices:
            assert f"| {', '.join(devices)} | `{name}` |" in TEXT


def test_every_core_that_is_not_supported_is_listed() -> None:
    for kind in UNSUPPORTED:
        chips = ", ".join(kind.chips)
        assert f"| {kind.name} | {chips} | {kind.why} | {kind.instead} |" in TEXT
        assert unsupported(kind.name) is kind
    assert not any(map(unsupported, CORES))


@pytest.mark.parametrize("word", ["riscv", "esp32", "rp2040", "xtensa"])
def test_the_documentation_knows_the_word(word: str) -> None:
    assert PAGE in {place.page.name for place in search([word])}


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("STM32H743ZI", "nucleo_h743zi"),
        ("stm32h743vit6", "nucleo_h743zi"),
        ("STM32F746NGH6", "stm32f746g_disco"),
        ("STM32F746ZG", "nucleo_f746zg"),
        ("nRF52840_xxAA", "nrf52840dk"),
        ("nRF5340", "nrf5340dk"),
        ("RP2040", "rpi_pico"),
        ("RP2350A", "rpi_pico2"),
        ("MIMXRT1062DVL6A", "mimxrt1060_evk"),
        ("STM32L4R5ZI", "nucleo_l4r5zi"),
        ("STM32U575ZITxQ", "nucleo_u575zi_q"),
        ("STM32H743ZG", None),
        ("RP20401", None),
        ("ESP32C3FH4", "esp32c3_devkitm"),
        ("ESP32-C3-WROOM-02", "esp32c3_devkitm"),
        ("ESP32-C6", None),
    ],
)
def test_a_part_leads_to_its_board(part: str, found: str | None) -> None:
    board = board_of_device(part)
    assert (board.name if board else None) == found


def test_a_board_file_for_another_core_gets_the_reason(tmp_path: Path) -> None:
    text = load_board("nrf52840dk").source.replace('"cortex-m4"', '"riscv32"')
    path = tmp_path / "nrf52840dk.toml"
    path.write_text(text.replace("[[memory]]", "[[memori]]"))
    with pytest.raises(BoardError, match=r"core: RISC-V is not one core: .*reference/chips"):
        load_board(path)
