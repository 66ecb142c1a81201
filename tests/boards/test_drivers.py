"""Drivers of real chips, compiled for this computer against registers of ours.

No emulator has these chips, so the tests hold the drivers against the reference manuals' numbers.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.project.tree import project_files

pytestmark = pytest.mark.tools

FAKES = Path(__file__).with_name("fake_registers.c")
CYCCNT = 0xE000_1004
COMPILE_TIMEOUT_S = 60
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]


def drivers(board: Board, folder: Path) -> ctypes.CDLL:
    """The board's drivers as a library, with ``fake_peek`` and ``fake_poke`` for its registers."""
    files = project_files(None, board)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "core.h":
            text, count = re.subn(
                r"#define REGISTER\(address\).*",
                "volatile uint32_t *fake_register(uint32_t address);\n"
                "#define REGISTER(address) (*fake_register(address))",
                text,
            )
            assert count == 1
            text = re.sub(r"__asm volatile\(.*\);", "", text)
        path.write_text(text)
    kinds = ("clock", "timer", "uart")
    sources = [path for kind in kinds for path in (folder / "template").glob(f"{kind}_*.c")]
    assert len(sources) == 3
    library = folder / "drivers.so"
    include = ["-I", str(folder / "template")]
    argv = ["cc", *FLAGS, *include, *map(str, sources), str(FAKES), "-o", str(library)]
    subprocess.run(argv, check=True, timeout=COMPILE_TIMEOUT_S)
    loaded = ctypes.CDLL(str(library))
    loaded.timer_ticks.restype = ctypes.c_uint64
    loaded.fake_peek.restype = ctypes.c_uint32
    loaded.fake_change.restype = ctypes.c_uint64
    loaded.uart_read.restype = loaded.uart_write.restype = ctypes.c_size_t
    return loaded


@pytest.fixture(params=["stm32f746g_disco", "nucleo_f746zg"])
def real_board(request: pytest.FixtureRequest) -> Board:
    return load_board(request.param)


@pytest.fixture
def library(real_board: Board, tmp_path: Path) -> ctypes.CDLL:
    return drivers(real_board, tmp_path)


def test_the_cycle_counter_is_extended_to_64_bits(library: ctypes.CDLL) -> None:
    library.timer_start()
    assert library.fake_peek(0xE000_1000) & 1  # DWT_CTRL: counting
    assert library.fake_peek(0xE000_E010) == 7  # SysTick: on, interrupting, core clock
    cycles = 0
    # Steps of SysTick's period, of almost a whole wrap, and of a few cycles.
    for step, is_interrupt in [(2**24, True)] * 600 + [(2**32 - 1, True), (5, False)] * 3:
        cycles += step
        library.fake_poke(CYCCNT, cycles % 2**32)
        if is_interrupt:
            library.timer_isr()
        else:
            assert library.timer_ticks() == cycles
    assert cycles > 5 * 2**32
    assert library.timer_ticks() == cycles


def test_a_deadline_is_noticed_once(library: ctypes.CDLL, real_board: Board) -> None:
    library.timer_start()
    cycles = 3 * real_board.cpu.clock_hz
    library.fake_poke(CYCCNT, cycles % 2**32)
    library.timer_isr()
    library.timer_set_deadline(200_000)
    due = cycles + real_board.cpu.clock_hz // 5
    for now, count in [(due - 1, 0), (due, 1), (due + 2**24, 1)]:
        library.fake_poke(CYCCNT, now % 2**32)
        library.timer_isr()
        assert library.fake_expired() == count
    library.timer_set_deadline(200_000)
    library.timer_set_deadline(0)
    library.fake_poke(CYCCNT, (due + real_board.cpu.clock_hz) % 2**32)
    library.timer_isr()
    assert library.fake_expired() == 1


def test_the_pll_makes_the_board_files_clock(real_board: Board, library: ctypes.CDLL) -> None:
    library.clock_start()
    pll = library.fake_peek(0x4002_3804)
    m, n, p = pll & 63, pll >> 6 & 511, 2 * (pll >> 16 & 3) + 2
    assert pll >> 22 & 1 == 1  # from the external oscillator
    clock = real_board.project.clock
    assert clock is not None
    oscillator_hz = clock.setting("hse_hz")
    assert oscillator_hz / m * n / p == real_board.cpu.clock_hz == 216_000_000
    assert 1e6 <= oscillator_hz / m <= 2e6  # the PLL's input, by the reference manual
    assert oscillator_hz / m * n / (pll >> 24 & 15) == 48e6  # USB's clock
    configuration = library.fake_peek(0x4002_3808)
    assert configuration & 15 == 0b1010  # the core's clock is the PLL, chosen and in use
    assert configuration >> 10 & 7 == 5 and configuration >> 13 & 7 == 4  # buses at /4 and /2
    assert library.fake_peek(0x4002_3C00) & 15 == 7  # flash wait states for 216 MHz
    assert library.fake_peek(0x4000_7000) >> 14 & 15 == 0b1111  # scale 1, overdrive, switched
    assert (library.fake_peek(0x4002_3800) >> 18 & 1) == clock.setting("hse_bypass")


# Flash interface, power, and reset and clock control: RM0385, the registers of chapters 3, 4 and 5.
# ST's stm32f746xx.h has the same addresses and bits.
RCC_CR, RCC_PLLCFGR, RCC_CFGR, RCC_APB1ENR = 0x4002_3800, 0x4002_3804, 0x4002_3808, 0x4002_3840
PWR_CR1, FLASH_ACR = 0x4000_7000, 0x4002_3C00


def changes(library: ctypes.CDLL) -> list[tuple[int, int]]:
    """Address and new value of every register that changed, in order."""
    found: list[tuple[int, int]] = []
    while change := library.fake_change(len(found)):
        found.append((change >> 32, change & 0xFFFF_FFFF))
    return found


def test_the_clock_is_raised_in_the_reference_manuals_order(
    real_board: Board, library: ctypes.CDLL
) -> None:
    """RM0385: entering over-drive mode (chapter 4), raising the frequency (chapter 3)."""
    library.clock_start()
    found = changes(library)

    def step(address: int, bits: int, value: int) -> int:
        """When the register's bits first got that value."""
        return next(at for at, (a, v) in enumerate(found) if a == address and v & bits == value)

    power_on = step(RCC_APB1ENR, 1 << 28, 1 << 28)
    oscillator = step(RCC_CR, 1 << 16, 1 << 16)
    scale = step(PWR_CR1, 3 << 14, 3 << 14)
    pll_set = step(RCC_PLLCFGR, 0, 0)
    pll_on = step(RCC_CR, 1 << 24, 1 << 24)
    overdrive = step(PWR_CR1, 1 << 16, 1 << 16)
    switch = step(PWR_CR1, 1 << 17, 1 << 17)
    latency = step(FLASH_ACR, 15, 7)
    dividers = step(RCC_CFGR, 7 << 10 | 7 << 13, 5 << 10 | 4 << 13)
    core = step(RCC_CFGR, 3, 2)
    # The power controller has no registers without its clock; the scale changes while the PLL is
    # off only, and so do the PLL's numbers.
    assert power_on < scale < pll_on and oscillator < pll_on and pll_set < pll_on
    # Over-drive is switched on while the PLL locks, enabled before it is switched to.
    assert pll_on < overdrive < switch < core
    # No bus is ever too fast, and flash never read too fast.
    assert max(latency, dividers) < core == len(found) - 1
    assert not any(v >> 24 & 1 for a, v in found[:pll_on] if a == RCC_CR)
    # Prefetch and the ART accelerator, which serve the flash's interface at its alias.
    assert found[latency][1] >> 8 & 3 == 3
    assert {address for address, _ in found} == {
        *(RCC_CR, RCC_PLLCFGR, RCC_CFGR, RCC_APB1ENR, PWR_CR1, FLASH_ACR)
    }


def test_the_cycle_counter_is_unlocked_before_it_is_switched_on(library: ctypes.CDLL) -> None:
    """A Cortex-M7's trace unit ignores software that has not written the key first."""
    library.timer_start()
    order = [address for address, _ in changes(library)]
    assert library.fake_peek(0xE000_1FB0) == 0xC5AC_CE55
    assert order.index(0xE000_EDFC) < order.index(0xE000_1FB0) < order.index(0xE000_1000)


def test_the_usart_is_set_up_and_moves_bytes(real_board: Board, library: ctypes.CDLL) -> None:
    uart = real_board.project.uart
    assert uart is not None
    base = uart.setting("base")
    library.uart_start()
    rate = uart.setting("clock_hz") / library.fake_peek(base + 0x0C)
    assert rate == pytest.approx(real_board.link.baud, rel=0.02)
    assert library.fake_peek(base) == 0b101101  # on, receiving and sending, interrupting
    for prefix in ("tx", "rx"):
        gpio, pin = uart.setting(f"{prefix}_gpio_base"), uart.setting(f"{prefix}_pin")
        assert library.fake_peek(gpio) >> 2 * pin & 3 == 2  # alternate function
        assert library.fake_peek(gpio + 0x20 + pin // 8 * 4) >> pin % 8 * 4 & 15 == 7
    irq = uart.setting("rx_irq")
    assert library.fake_peek(0xE000_E100 + irq // 32 * 4) == 1 << irq % 32

    sent = bytes(range(256)) * 12
    library.fake_receive(ctypes.c_uint32(base), sent[:100], 100)
    library.uart_rx_isr()
    room = ctypes.create_string_buffer(4096)
    assert library.uart_is_busy() & 1
    assert library.uart_read(room, ctypes.c_size_t(60)) == 60
    assert library.uart_read(room, ctypes.c_size_t(60)) == 40
    assert room.raw[:40] == sent[60:100]
    # More than the ring holds: the surplus is lost, what was kept is in order.
    library.fake_receive(ctypes.c_uint32(base), sent, len(sent))
    library.uart_rx_isr()
    assert library.uart_read(room, ctypes.c_size_t(4096)) == 2048
    assert room.raw[:2048] == sent[:2048]
    assert not library.uart_is_busy() & 1


def test_nordics_uart_is_set_up_and_moves_bytes(tmp_path: Path) -> None:
    board = load_board("nrf52840dk")
    library = drivers(board, tmp_path)
    uart = board.project.uart
    assert uart is not None
    base = uart.setting("base")
    library.uart_start()
    assert library.fake_peek(base + 0x524) == 0x01D7_E000  # the product specification's Baud115200
    assert (library.fake_peek(base + 0x50C), library.fake_peek(base + 0x514)) == (6, 8)
    order = [address - base for address, _ in changes(library)]
    # The pins are chosen while the peripheral is off; it starts when it is on.
    assert order.index(0x514) < order.index(0x500) < order.index(0x000) < order.index(0x008)
    assert library.fake_peek(0xE000_E100) == 1 << uart.setting("rx_irq")

    sent = bytes(range(256)) * 12
    library.fake_nrf_receive(ctypes.c_uint32(base), sent, len(sent))
    library.uart_rx_isr()
    room = ctypes.create_string_buffer(4096)
    assert library.uart_is_busy() & 1
    assert library.uart_read(room, ctypes.c_size_t(4096)) == 2048
    assert room.raw[:2048] == sent[:2048]
    assert not library.uart_is_busy() & 1
    assert library.uart_write(b"ab", ctypes.c_size_t(2)) == 2
    assert library.fake_peek(base + 0x51C) == ord("b")
    # The last byte has not left yet: the line takes no other.
    library.fake_poke(base + 0x11C, 0)
    assert library.uart_write(b"cd", ctypes.c_size_t(2)) == 0
    assert library.uart_is_busy() & 1
    library.fake_poke(base + 0x11C, 1)
    assert library.uart_write(b"cd", ctypes.c_size_t(2)) == 2
    library.uart_drain()
