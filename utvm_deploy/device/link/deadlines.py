"""How long anything may take: every deadline is computed here, from the size of the work.

    deadline = floor + cycles / core's rate + bytes / rate of the line, the probe or the flash

A deadline must never stop work that would have ended by itself, so each rate is pessimistic. The
work is counted in bytes that a function touches and in multiply-accumulates; both become cycles.
Work without a size, such as the start of a program, has a constant next to its use.
"""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.boards.board import Board

#: Cycles for each byte that a function reads or writes. A checksum takes 15, a soft-float
#: exponential on a Cortex-M0+ some 150.
CYCLES_PER_BYTE = 200
#: Cycles for each multiply-accumulate. Generic kernels on the slowest core here take about 20.
CYCLES_PER_MAC = 100
#: An emulator's clock is faster than a chip's instructions would be. With QEMU's
#: ``-icount shift=6``, one of its seconds is 15.6 million instructions, for any clock in the board
#: file.
EMULATED_HZ = 10_000_000
#: A busy computer takes up to this number of seconds for one second of an emulator or a process.
BUSY_COMPUTER = 8.0
#: Seconds that a task gets in addition, by the device's clock.
TASK_FLOOR_S = 0.2
#: Seconds that a model's layer gets: it may first fill caches and tables.
LAYER_FLOOR_S = 2.0
#: Seconds that a list of tasks gets in addition, by the host's clock, for the way there and back.
TASKS_FLOOR_S = 2.0
#: Any line is at least this fast: 9600 baud, with a half more for what is sent again.
SECONDS_PER_LINE_BYTE = 1.5 * 10 / 9_600
#: Seconds that each exchange may take besides its bytes: USB adapters, and damaged frames.
SECONDS_PER_EXCHANGE = 0.25
#: Bytes per second through a debug probe at 100 kHz, packets and answers included.
PROBE_BYTES_PER_S = 2_000
#: Bytes of flash that are erased and written in a second. An STM32F7 takes 16 s to erase 1 MiB.
FLASH_BYTES_PER_S = 8_000


@dataclass(frozen=True)
class Speeds:
    """The slowest rates that a device may have."""

    #: Cycles in a second of the device's own clock.
    core_hz: float = EMULATED_HZ
    #: Real seconds for one of the device's.
    host_seconds: float = BUSY_COMPUTER

    def task_s(self, size: int = 0, macs: int = 0, floor_s: float = TASK_FLOOR_S) -> float:
        """Seconds for a function that touches ``size`` bytes, by the device's own clock."""
        cycles = CYCLES_PER_BYTE * size + CYCLES_PER_MAC * macs
        return floor_s + cycles / self.core_hz

    def host_s(
        self,
        task_s: float = 0.0,
        *,
        line_bytes: int = 0,
        exchanges: int = 1,
        floor_s: float = TASKS_FLOOR_S,
    ) -> float:
        """For tasks that run so long and bytes that travel, by the host's clock."""
        line_s = SECONDS_PER_LINE_BYTE * line_bytes + SECONDS_PER_EXCHANGE * (exchanges - 1)
        return floor_s + line_s + self.host_seconds * task_s


def speeds_of(board: Board) -> Speeds:
    """The rates of a board, by its file."""
    clock_hz = float(board.cpu.clock_hz)
    if board.is_host:
        # Its clock is the computer's, which continues while other processes run.
        return Speeds(clock_hz / BUSY_COMPUTER, host_seconds=1.0)
    if board.emulator is not None:
        return Speeds(min(clock_hz, EMULATED_HZ), host_seconds=BUSY_COMPUTER)
    return Speeds(clock_hz, host_seconds=1.0)


def probe_s(size: int, floor_s: float) -> float:
    """Seconds for ``size`` bytes of RAM that go through a debug probe."""
    return floor_s + size / PROBE_BYTES_PER_S


def flash_s(size: int, floor_s: float) -> float:
    """Seconds for ``size`` bytes of flash that a probe erases and writes."""
    return floor_s + size / FLASH_BYTES_PER_S
