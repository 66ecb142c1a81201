"""The chips that board files are shipped for: clocks, serial lines, and what boot ROMs read.

The numbers are those of the reference manuals and datasheets. None of these boards is here.
"""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from shipped_chips import VECTORS
from test_drivers import changes, drivers
from tiny_model import tiny_model

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.options import RUNTIME_RAM_BYTES, SERIAL_RAM_BYTES
from utvm_deploy.project import build_image

pytestmark = pytest.mark.tools

TEMPLATE = Path(__file__).parents[2] / "templates" / "arm_m" / "baremetal"
ASSEMBLE_TIMEOUT_S = 60


def flash_of(elf: Path) -> dict[int, bytes]:
    """Address of each loaded segment -> its bytes."""
    data = elf.read_bytes()
    begin, size, count = struct.unpack_from("<I", data, 28)[0], *struct.unpack_from("<HH", data, 42)
    found = {}
    for at in range(begin, begin + size * count, size):
        kind, offset, _, address, length = struct.unpack_from("<5I", data, at)
        if kind == 1 and length:
            found[address] = data[offset : offset + length]
    return found


def words(segments: Mapping[int, bytes], address: int, count: int) -> tuple[int, ...]:
    """Words of an image as they are in flash."""
    for begin, data in segments.items():
        if begin <= address < begin + len(data):
            return struct.unpack_from(f"<{count}I", data, address - begin)
    raise AssertionError(f"nothing is at 0x{address:08x}")


def crc32_mpeg(data: bytes) -> int:
    """CRC-32 of the polynomial 0x04C11DB7, not reflected, from ones, not inverted."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C1_1DB7 if crc >> 31 else crc << 1) & 0xFFFF_FFFF
    return crc


@pytest.mark.parametrize("name", VECTORS)
def test_an_image_has_its_vectors_where_the_chip_looks(name: str) -> None:
    board = load_board(name)
    image = build_image(tiny_model(board), board)
    taken = image.ram_bytes - board.project.stack_bytes
    assert taken <= RUNTIME_RAM_BYTES + SERIAL_RAM_BYTES
    segments = flash_of(image.elf)
    assert min(segments) == board.main_flash.address
    vectors = VECTORS[name]
    assert image.symbols["vector_table"] == vectors
    stack, reset = words(segments, vectors, 2)
    assert stack == image.symbols["ld_stack_top"]
    assert board.data_ram.address < stack <= board.data_ram.end and stack % 8 == 0
    assert reset & 1 and reset & ~1 == image.symbols["reset_handler"] & ~1
    check = {
        "rp2040": check_second_stage,
        "rp2350": check_image_definition,
        "imxrt_flexspi": check_flexspi_head,
    }.get(board.project.boot_block)
    if check is not None:
        check(board, segments, image.symbols)


def check_second_stage(board: Board, segments: Mapping[int, bytes], _: Mapping[str, int]) -> None:
    """RP2040 datasheet 2.8.1.3.1: 252 bytes of code and their CRC."""
    *_, crc = stage = words(segments, board.main_flash.address, 64)
    assert crc == crc32_mpeg(struct.pack("<63I", *stage[:-1]))


def check_image_definition(
    board: Board, segments: Mapping[int, bytes], symbols: Mapping[str, int]
) -> None:
    """RP2350 datasheet 5.9.5.1."""
    at = symbols["image_definition"]
    assert board.main_flash.address < at < board.main_flash.address + 4096 and at % 4 == 0
    assert words(segments, at, 5) == (0xFFFFDED3, 0x10210142, 0x1FF, 0, 0xAB123579)


def check_flexspi_head(
    board: Board, segments: Mapping[int, bytes], symbols: Mapping[str, int]
) -> None:
    """I.MX RT1060 reference manual: the configuration block, image vector table, boot data."""
    flash = board.main_flash
    assert words(segments, flash.address, 2) == (int.from_bytes(b"FCFB", "little"), 0x5601_0000)
    assert words(segments, flash.address + 0x50, 1) == (flash.size,)
    # Fast read: its command, 24 bits of address, 8 idle clocks, data; all on one line.
    read = b"".join(word.to_bytes(4, "little") for word in words(segments, flash.address + 0x80, 2))
    steps = [struct.unpack_from("<H", read, at)[0] for at in range(0, 8, 2)]
    assert [(one >> 10, one >> 8 & 3, one & 255) for one in steps] == [
        (0x01, 0, 0x0B),
        (0x02, 0, 24),
        (0x0C, 0, 8),
        (0x09, 0, 4),
    ]
    at = flash.address + 0x1000
    entry = symbols["boot_entry"] | 1
    assert words(segments, at, 8) == (0x4320_00D1, entry, 0, 0, at + 0x20, at, 0, 0)
    assert words(segments, at + 0x20, 3) == (flash.address, flash.size, 0)


def test_the_second_stage_is_what_its_comments_say(tmp_path: Path) -> None:
    text = (TEMPLATE / "boot_rp2040.c").read_text(encoding="utf-8")
    shown = [(int(word, 16), note) for word, note in re.findall(r"0x(\w{8})u, +// (.*)", text)[:16]]
    code = [line for _, note in shown[:11] for line in note.split("; ")]
    data = [f"{note}: .word 0x{word:08x}" for word, note in shown[11:]]
    source = tmp_path / "stage.s"
    head = [".syntax unified", ".cpu cortex-m0plus", ".thumb"]
    source.write_text("\n".join([*head, *code, ".align 2", *data, ""]))
    for argv in (
        ["arm-none-eabi-as", str(source), "-o", str(tmp_path / "stage.o")],
        ["arm-none-eabi-objcopy", "-O", "binary", str(tmp_path / "stage.o"), str(tmp_path / "s")],
    ):
        subprocess.run(argv, check=True, timeout=ASSEMBLE_TIMEOUT_S)
    assert (tmp_path / "s").read_bytes() == struct.pack("<16I", *(word for word, _ in shown))
    # Where the RP2040 has the serial interface, the vectors, and the register of their address.
    assert [word for word, note in shown if note in ("ssi", "vectors", "vtor")] == [
        0x1800_0000,
        0x1000_0100,
        0xE000_ED08,
    ]


def started(name: str, folder: Path) -> tuple[Board, ctypes.CDLL]:
    """The board's drivers, after its clock has started."""
    board = load_board(name)
    library = drivers(board, folder)
    clock = board.project.clock
    assert clock is not None
    for step in clock.steps:
        if step.waits:
            library.fake_hold(
                ctypes.c_uint32(step.register),
                ctypes.c_uint32(step.mask),
                ctypes.c_uint32(step.value),
            )
    library.clock_start()
    return board, library


@pytest.mark.parametrize(
    ("name", "resets", "oscillator", "clocks", "pll", "dividers"),
    [
        ("rpi_pico", 0x4000_C000, 0x4002_4000, 0x4000_8000, 0x4002_8000, (6, 2)),
        ("rpi_pico2", 0x4002_0000, 0x4004_8000, 0x4001_0000, 0x4005_0000, (5, 2)),
    ],
)
def test_raspberry_pis_pll_makes_the_board_files_clock(
    name: str,
    resets: int,
    oscillator: int,
    clocks: int,
    pll: int,
    dividers: tuple[int, int],
    tmp_path: Path,
) -> None:
    board, library = started(name, tmp_path)
    first, second = library.fake_peek(pll + 12) >> 16 & 7, library.fake_peek(pll + 12) >> 12 & 7
    vco_hz = 12_000_000 / (library.fake_peek(pll) & 63) * library.fake_peek(pll + 8)
    assert (first, second) == dividers and vco_hz / first / second == board.cpu.clock_hz
    assert 750e6 <= vco_hz <= 1600e6
    # All parts of the PLL that are used have power; the core and the peripherals run from it.
    assert library.fake_peek(pll + 4) & 0b101001 == 0
    assert library.fake_peek(clocks + 0x3C) & 0xE1 == 1
    assert library.fake_peek(clocks + 0x48) & 0x8E0 == 0x800
    # Both GPIOs have the function UART.
    pins = 0x4001_4000 if name == "rpi_pico" else 0x4002_8000
    assert library.fake_peek(pins + 4) == library.fake_peek(pins + 12) == 2
    found = [address for address, _ in changes(library)]
    assert found.index(oscillator) < found.index(pll + 8) < found.index(pll + 12)
    assert found.index(pll + 12) < len(found) - 1 - found[::-1].index(clocks + 0x3C)
    assert library.fake_peek(resets) == 0


# Power, clocks and flash of the STM32L4+ (RM0432) and the STM32U5 (RM0456).
@pytest.mark.parametrize(
    ("name", "ready", "divisors", "switch", "wait_states", "frequency_mhz"),
    [
        ("nucleo_l4r5zi", 0x4002_1000, 0x4002_100C, 0x4002_1008, 3, 80),
        ("nucleo_u575zi_q", 0x4602_0C00, 0x4602_0C34, 0x4602_0C1C, 4, 160),
    ],
)
def test_sts_pll_makes_the_board_files_clock(
    name: str,
    ready: int,
    divisors: int,
    switch: int,
    wait_states: int,
    frequency_mhz: int,
    tmp_path: Path,
) -> None:
    board, library = started(name, tmp_path)
    value = library.fake_peek(divisors)
    if name == "nucleo_l4r5zi":
        multiplier, divisor = value >> 8 & 127, 2 * (value >> 25 & 3) + 2
        assert value & 3 == 1 and value >> 4 & 15 == 0 and value >> 24 & 1  # from MSI; output R
    else:
        multiplier, divisor = (value & 511) + 1, (value >> 24 & 127) + 1
        assert library.fake_peek(0x4602_0C28) & 3 == 1 and library.fake_peek(0x4602_0C28) >> 18 & 1
    assert 4_000_000 * multiplier / divisor == board.cpu.clock_hz == frequency_mhz * 1_000_000
    assert library.fake_peek(0x4002_2000) & 15 == wait_states
    found = [address for address, _ in changes(library)]
    # Flash is slow before the core is fast.
    assert found.index(divisors) < found.index(ready) < found.index(0x4002_2000)
    assert found.index(0x4002_2000) < found.index(switch)


def test_nxps_pll_makes_the_board_files_clock(tmp_path: Path) -> None:
    board, library = started("mimxrt1060_evk", tmp_path)
    pll = library.fake_peek(0x400D_8000)
    assert pll >> 13 & 1 and not pll >> 12 & 1  # on, and powered
    divisor = (library.fake_peek(0x400F_C010) & 7) + 1
    bus = library.fake_peek(0x400F_C014)
    assert 24e6 * (pll & 127) / 2 / divisor / ((bus >> 10 & 7) + 1) == board.cpu.clock_hz
    assert board.cpu.clock_hz / ((bus >> 8 & 3) + 1) <= 150e6
    assert not bus >> 25 & 1 and library.fake_peek(0x400F_C018) >> 18 & 3 == 3  # from the PLL
    assert library.fake_peek(0x400F_C024) & 0x7F == 0x40  # the UART's clock: the crystal
    assert library.fake_peek(0x401F_80EC) == library.fake_peek(0x401F_80F0) == 2


@pytest.mark.parametrize(
    ("name", "data", "state", "mask", "if_any", "can_send"),
    [
        ("rpi_pico", 0x00, 0x18, 1 << 4, 0, 0),
        ("rpi_pico2", 0x00, 0x18, 1 << 4, 0, 0),
        ("mimxrt1060_evk", 0x1C, 0x14, 1 << 21, 1 << 21, 1 << 23),
        ("nucleo_l4r5zi", 0x24, 0x1C, 1 << 5, 1 << 5, 1 << 7),
        ("nucleo_u575zi_q", 0x24, 0x1C, 1 << 5, 1 << 5, 1 << 7),
    ],
)
def test_the_uart_has_the_rate_and_moves_bytes(
    name: str, data: int, state: int, mask: int, if_any: int, can_send: int, tmp_path: Path
) -> None:
    board, library = started(name, tmp_path)
    uart = board.project.uart
    assert uart is not None
    base, clock_hz = uart.setting("base"), uart.setting("clock_hz")
    library.uart_start()
    peek = library.fake_peek
    if uart.name == "pl011":
        rate = clock_hz / 16 / (peek(base + 0x24) + peek(base + 0x28) / 64)
        assert (
            peek(base + 0x30) == 0x301 and peek(base + 0x2C) == 0x70 and peek(base + 0x38) == 0x50
        )
    elif uart.name == "imx_lpuart":
        baud = peek(base + 0x10)
        rate = clock_hz / ((baud >> 24 & 31) + 1) / (baud & 0x1FFF)
        assert peek(base + 0x18) == 1 << 21 | 1 << 19 | 1 << 18
    else:
        rate = clock_hz * uart.setting("baud_factor") / peek(base + 0x0C)
        assert peek(base) == 0b101101
    assert rate == pytest.approx(board.link.baud, rel=0.02)
    irq = uart.setting("rx_irq")
    assert peek(0xE000_E100 + irq // 32 * 4) == 1 << irq % 32

    sent = bytes(range(256)) * 12
    library.fake_line(*map(ctypes.c_uint32, (base + data, base + state, mask, if_any)))
    library.fake_receive(ctypes.c_uint32(0), sent, len(sent))
    library.uart_rx_isr()
    room = ctypes.create_string_buffer(4096)
    assert library.uart_is_busy() & 1
    assert library.uart_read(room, ctypes.c_size_t(4096)) == 2048
    assert room.raw[:2048] == sent[:2048]
    library.fake_hold(*map(ctypes.c_uint32, (base + state, can_send, can_send)))
    assert library.uart_write(b"ab", ctypes.c_size_t(2)) == 2
    to = base + (0x28 if uart.name == "stm32_usart" else data)
    assert peek(to) == ord("b")


def test_nordics_uart_with_dma_asks_for_each_byte(tmp_path: Path) -> None:
    board, library = started("nrf5340dk", tmp_path)
    assert library.fake_peek(0x5000_5558) == 0  # 128 MHz by one
    uart = board.project.uart
    assert uart is not None
    base, peek = uart.setting("base"), library.fake_peek
    library.uart_start()
    assert peek(base + 0x524) == 0x01D6_0000  # the product specification's Baud115200
    assert (peek(base + 0x50C), peek(base + 0x514)) == (20, 22)
    assert (peek(base + 0x500), peek(base + 0x538), peek(base + 0x304)) == (8, 1, 1 << 4)
    order = [address - base for address, _ in changes(library)]
    assert order.index(0x514) < order.index(0x500) < order.index(0x534) < order.index(0x000)
    assert peek(0xE000_E100) == 1 << 8
    # A byte came: it is taken, and the next one asked for.
    library.fake_poke(base, 0)
    library.fake_poke(base + 0x110, 1)
    library.uart_rx_isr()
    assert (peek(base), peek(base + 0x110)) == (1, 0)
    room = ctypes.create_string_buffer(8)
    assert library.uart_read(room, ctypes.c_size_t(8)) == 1
    # 64 bytes at a time; the next ones when they have left.
    text = bytes(100)
    assert library.uart_write(text, ctypes.c_size_t(100)) == 64
    assert (peek(base + 0x548), peek(base + 0x008)) == (64, 1)
    assert library.uart_write(text, ctypes.c_size_t(36)) == 0
    library.fake_poke(base + 0x120, 1)
    assert library.uart_write(text, ctypes.c_size_t(36)) == 36
    assert (peek(base + 0x548), peek(base + 0x120)) == (36, 0)


def test_systick_is_extended_to_64_bits(tmp_path: Path) -> None:
    board, library = started("rpi_pico", tmp_path)
    library.timer_start()
    assert library.fake_peek(0xE000_E010) == 7  # on, interrupting, the core's clock
    period, pending = 1 << 24, ctypes.c_uint32(0xE000_ED04)

    def at(cycles: int) -> None:
        library.fake_poke(0xE000_E018, -cycles % period)

    for cycles in (0, 1, 5, period - 1):
        at(cycles)
        assert library.timer_ticks() == cycles
    # A wrap counts before its interrupt is served, and once.
    at(period)
    library.fake_poke(pending, 1 << 26)
    assert library.timer_ticks() == period
    library.fake_poke(pending, 0)
    library.timer_isr()
    at(period + 7)
    assert library.timer_ticks() == period + 7
    # A deadline is noticed once, at the wrap behind it.
    library.timer_set_deadline(200_000)
    wraps = -(-(board.cpu.clock_hz // 5 + 7) // period)
    for number in range(1, wraps + 3):
        library.timer_isr()
        assert library.fake_expired() == (number >= wraps)
