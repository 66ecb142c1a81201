"""Deadlines grow with the work: one rule for tasks, layers, lines, probes and flash."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from tests.link.test_damaged_memory import HELLO
from utvm_deploy.base.errors import TaskTimeout
from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.facts import INSTRUCTIONS
from utvm_deploy.device.link import deadlines
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.deadlines import Speeds, flash_s, probe_s, speeds_of
from utvm_deploy.device.queue import CHECK_SYMBOL, FILL_SYMBOL, FILL_ZONES_SYMBOL, Queue
from utvm_deploy.device.workspace_blocks import Block, Memory
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.verifying.on_board import verify

MIB = 1 << 20
#: Cycles for a byte that utvm_crc32_of takes on a Cortex-M7, and utvm_fill on a Cortex-M0+.
CHECKSUM_CYCLES, FILL_CYCLES = 15, 5


def test_every_rate_counts() -> None:
    speeds = Speeds(core_hz=1_000_000, host_seconds=4.0)
    floor_s = speeds.task_s()
    assert speeds.task_s(1000) == pytest.approx(floor_s + 1000 * deadlines.CYCLES_PER_BYTE / 1e6)
    assert speeds.task_s(0, 5000) == pytest.approx(floor_s + 5000 * deadlines.CYCLES_PER_MAC / 1e6)
    assert speeds.host_s(3.0) == deadlines.TASKS_FLOOR_S + 12.0
    assert speeds.host_s(line_bytes=960, floor_s=0.0) == pytest.approx(1.5)
    assert probe_s(MIB, 5.0) > MIB / 8192
    # An STM32F7's data sheet: 16 s to erase 1 MiB, and as much to write it.
    assert flash_s(MIB, 0.0) > 32.0


@pytest.mark.parametrize("name", ["host", "mps2_an386", "mps2_an500", "stm32f746g_disco"])
def test_what_is_known_of_a_board(name: str) -> None:
    board = load_board(name)
    speeds = speeds_of(board)
    assert speeds.core_hz <= board.cpu.clock_hz
    # The emulated clock makes 15.6 million instructions in a second of its own.
    assert board.emulator is None or speeds.core_hz < 15_600_000
    # LiteRT's float exponential on a core without an FPU takes some 150 cycles for a byte.
    assert speeds.task_s(MIB) > 150 * MIB / board.cpu.clock_hz


class SlowDevice:
    """Runs the queue's own tasks at 1 MHz, and stops them at their deadlines as a board does."""

    def __init__(self, cycles_per_byte: dict[int, int]) -> None:
        self._cycles_per_byte = cycles_per_byte
        self.ran: list[int] = []

    def read(self, address: int, size: int) -> bytes:
        return bytes(size)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        took_s = 0.0
        for index, task in enumerate(tasks):
            size = task.args[1] if task.function in self._cycles_per_byte else 0
            task_s = size * self._cycles_per_byte.get(task.function, 0) / 1e6
            assert task.deadline_s is not None, "a task without a deadline of its own"
            if task_s > task.deadline_s:
                raise TaskTimeout("too slow", status=11, index=index, detail=0)
            took_s += task_s
            self.ran.append(task.function)
        assert took_s < timeout_s
        return [(1,)] * len(tasks)


def test_the_fills_of_a_large_block_are_given_their_time() -> None:
    fill, zones, check = 16, 32, 48
    symbols = {FILL_SYMBOL: fill, FILL_ZONES_SYMBOL: zones, CHECK_SYMBOL: check}
    device = SlowDevice({fill: FILL_CYCLES})
    memory = Memory("slow", 0x2000_0000, 4 * MIB)
    report: Block = memory.allocate(4, "the report")
    queue = Queue(device, HELLO, symbols, lambda: report, Speeds(core_hz=1e6))
    block = memory.allocate(MIB, "a large tensor")
    queue.add_zones(block)
    queue.add_zeros(block, block.address)
    queue.flush()
    assert device.ran == [zones, fill]


@pytest.mark.tools
def test_the_checksum_of_a_large_tensor_is_given_its_time() -> None:
    """The deadline that a call has by default, on a board whose core is slow."""
    with utvm_deploy.connect("host") as device:
        device.session.speeds = Speeds(core_hz=1e6)
        address = device.allocate(MIB // 2, "a large buffer")
        call = device.call("utvm_crc32_of", address, MIB // 2, device.allocate(4))
        assert call.task.deadline_s is not None
        assert call.task.deadline_s > MIB // 2 * CHECKSUM_CYCLES / 1e6
        other = device.call("utvm_crc32_of", address, 4, device.allocate(4))
        assert other.task.deadline_s == pytest.approx(deadlines.TASK_FLOOR_S, rel=0.01)
        device.sync()


BOARD = """
name = "roomy"
vendor = "test"
description = "the emulated Cortex-M7 with all the memory that its machine has"

[cpu]
core = "cortex-m7"
clock_hz = 25_000_000
fpu = "single"
dsp = true
mve = false
icache_bytes = 4096
dcache_bytes = 4096

[[memory]]
name = "flash"
address = 0x0000_0000
size = 0x0040_0000
kind = "flash"
executable = true

[[memory]]
name = "ram"
address = 0x2000_0000
size = 0x0040_0000
kind = "ram"
executable = true

[project]
templates = ["baremetal"]
compiler_flags = []
stack_bytes = 4096

[project.uart]
driver = "cmsdk"
base = 0x4000_4000
rx_irq = 0
clock_hz = 25_000_000

[project.timer]
driver = "cmsdk"
base = 0x4000_0000
irq = 8
clock_hz = 25_000_000
unit = "instructions"
multiplier = 5
divisor = 8

[project.clock]
driver = "none"

[probe]
kinds = ["qemu"]

[link]
kinds = ["monitor", "debug"]
baud = 115_200

[emulator]
program = "qemu-system-arm"
machine = "mps2-an500"
arguments = ["-icount", "shift=6,sleep=off"]
"""


def large_layers(path: Path) -> Path:
    """Layers of 1.2 MB in and out, of each kind: multiplications, bytes alone, a reduction."""
    rng = np.random.default_rng(5)
    m = ModelWriter()
    x = m.input((1, 640, 640, 3), scale=0.05)
    weights = rng.integers(-127, 127, (3, 1, 1, 3)).astype(np.int8)
    y = m.conv2d(x, weights, np.zeros(3, np.int32), scale=0.1, activation="RELU6")
    z = m.add(x, y, scale=0.1)
    m.output(m.mean(z, (1, 2), scale=0.05))
    return m.save(path)


@pytest.mark.emulator
def test_layers_of_more_than_a_megabyte(tmp_path: Path) -> None:
    (tmp_path / "roomy.toml").write_text(BOARD)
    board = load_board(tmp_path / "roomy.toml")
    assert board.emulator is not None
    if not shutil.which(board.emulator.program):
        pytest.skip(f"{board.emulator.program} is not installed")
    path = large_layers(tmp_path / "large.tflite")
    with utvm_deploy.connect(board, timing=INSTRUCTIONS) as device:
        model = device.load(utvm_deploy.compile(path, board, scratch="stack"))
        found = verify(model, path, random_samples(load_model(path), 1))
    assert found.ok, found
    assert max(check.bytes_each for check in found.layers) > 1_200_000
