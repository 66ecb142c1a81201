"""One body of tests over the host process and every emulated core: the image answers, and well."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import re
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_model import tiny_model

from utvm_deploy.base.errors import DeviceReset, LinkError, LinkTimeout, TaskTimeout
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device.link.base import Link, Task
from utvm_deploy.device.link.fault import FAULT_BYTES, FAULT_SYMBOL, kept_fault
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.probe import (
    RunningBoard,
    needs_debugger,
    open_link,
    start,
)
from utvm_deploy.project import Image, build_image

pytestmark = [pytest.mark.small_boards, pytest.mark.runtime]

EXECUTE_TIMEOUT_S = 20.0


@pytest.fixture
def image(board: Board) -> Image:
    return build_image(tiny_model(board), board)


@pytest.fixture
def running(board: Board, image: Image) -> Iterator[RunningBoard]:
    with start(board, image, has_debug_stream=needs_debugger(board.link.kinds[0])) as running:
        yield running


@pytest.fixture
def link(board: Board, running: RunningBoard) -> Link:
    """The first of the board's links, by itself."""
    link = open_link(running, board.link.kinds[0], "{:#010x}".format)
    link.hello()
    return link


def test_hello_agrees_with_board_and_elf(board: Board, image: Image, link: Link) -> None:
    hello = link.hello()
    assert hello.image.startswith("tiny@")
    assert hello.workspace_address == image.symbols["utvm_workspace"]
    assert hello.workspace_size == image.workspace_bytes
    timer = board.project.timer
    expected = (10**9, "nanoseconds") if timer is None else (timer.ticks_hz, timer.unit)
    assert (hello.ticks_per_second, hello.tick_unit) == expected


@pytest.mark.tools
def test_with_its_cycle_model_a_board_counts_cycles(board: Board, image: Image) -> None:
    if not board.has_cycle_model:
        pytest.skip("this board has no cycle model")
    kind = board.link.kinds[0]
    with start(
        board, image, has_debug_stream=needs_debugger(kind), with_cycle_model=True
    ) as running:
        hello = open_link(running, kind, "{:#010x}".format).hello()
        assert (hello.ticks_per_second, hello.tick_unit) == (board.cpu.clock_hz, "cycles")
        running.reset()
        assert open_link(running, kind, "{:#010x}".format).hello().tick_unit == "cycles"
        assert running.cycle_model is not None
        folder = running.cycle_model.report.parent
        running.stop()
        assert json.loads(running.cycle_model.report.read_text())["unknown"] == []
    assert not folder.exists()


def test_regions_are_the_board_files(board: Board, link: Link) -> None:
    if board.is_host:
        pytest.skip("a process has no regions of a board file")
    flash, ram = board.main_flash, board.main_ram
    rights = {(r.address, r.size): (r.readable, r.writable, r.executable) for r in link.regions()}
    assert rights[(flash.address, flash.size)] == (True, False, True)
    assert rights[(ram.address, ram.size)] == (True, True, ram.executable)
    assert set(rights) <= {(region.address, region.size) for region in board.memory}


def test_memory_comes_back_as_written(link: Link) -> None:
    hello = link.hello()
    data = bytes(range(256)) * 20
    # Both ends of the workspace, so that its bounds are true.
    for address in (
        hello.workspace_address,
        hello.workspace_address + hello.workspace_size - len(data),
    ):
        link.write(address, data)
        assert link.read(address, len(data)) == data
        assert link.checksum(address, len(data)) == zlib.crc32(data)


def test_a_model_and_the_crc_task_run(image: Image, link: Link) -> None:
    arena = link.hello().workspace_address
    link.write(arena, bytes(16))
    out = arena + 64
    symbols = image.symbols
    ticks = link.execute(
        [
            Task(symbols["tiny_run"], (arena,)),
            Task(symbols["tiny_run_layer"], (1, arena), repeat=3),
            Task(symbols["utvm_crc32_of"], (arena, 16, out)),
        ],
        EXECUTE_TIMEOUT_S,
    )
    assert [len(calls) for calls in ticks] == [1, 3, 1]
    expected = bytes([8 + 3 * 5]) * 16
    assert link.read(arena, 16) == expected
    assert int.from_bytes(link.read(out, 4), "little") == zlib.crc32(expected)


def test_instruction_counts_are_exact_and_repeat(
    board: Board, image: Image, running: RunningBoard, link: Link
) -> None:
    if board.project.timer is None or board.project.timer.unit != "instructions":
        pytest.skip("this board's ticks are not instructions")
    spin = image.symbols["tiny_spin"]
    turns = (1, 2, 3, 4, 5, 1000, 1001, 123_457)
    tasks = [Task(spin, (n,), repeat=7) for n in turns]
    measured = []
    for _ in range(3):
        measured.append(link.execute(tasks, EXECUTE_TIMEOUT_S))
        running.reset()
        link.hello()
    assert measured[0] == measured[1] == measured[2]
    for calls in measured[0]:
        assert len(set(calls)) == 1
    counts = [calls[0] for calls in measured[0]]
    # Two instructions a turn; what is around the loop costs the same for all.
    assert [count - counts[0] for count in counts] == [2 * (n - 1) for n in turns]
    assert 0 < counts[0] < 200


def test_the_timer_counts_beyond_32_bits(board: Board) -> None:
    timer = board.project.timer
    if timer is None or timer.driver.name not in ("cmsdk", "nrf"):
        pytest.skip("this board's timer has more than 32 bits")
    # The timer wraps after 2**32 counts of 40 or 62.5 ns. With the slowest instructions that QEMU
    # knows, 1024 ns each, these are 168 or 262 million.
    assert board.emulator is not None
    slowdown = 1024 * timer.ticks_hz // 10**9
    slow = dataclasses.replace(
        board,
        emulator=dataclasses.replace(board.emulator, arguments=("-icount", "shift=10,sleep=off")),
        project=dataclasses.replace(
            board.project, timer=dataclasses.replace(timer, divisor=timer.divisor * slowdown)
        ),
    )
    image = build_image(tiny_model(slow), slow)
    turns = 140_000_000
    with start(slow, image) as running:
        link = MonitorLink(running.stream)
        spin = image.symbols["tiny_spin"]
        # Deadlines below, and beyond, what the counter holds at once.
        tasks = [Task(spin, (n,), deadline_s=s) for n, s in ((1, 100.0), (turns, 1000.0))]
        tasks += [Task(spin, (1,), deadline_s=100.0)]
        ((before,), (ticks,), (after,)) = link.execute(tasks, EXECUTE_TIMEOUT_S)
        # The interrupts are counted, too: one at a wrap, or two half-way, of up to 70 instructions.
        assert 0 <= ticks - before - 2 * (turns - 1) < 150
        assert before == after
        with pytest.raises(TaskTimeout):
            link.execute([Task(spin, (turns,), deadline_s=190.0)], EXECUTE_TIMEOUT_S)


def test_a_reset_is_noticed(link: Link, running: RunningBoard) -> None:
    nonces = {link.hello().nonce}
    for _ in range(3):
        link.reset()
        nonces.add(link.hello().nonce)
    for _ in range(2):
        running.reset()
        nonces.add(link.hello().nonce)
    assert len(nonces) == 6


def test_a_reset_behind_the_links_back_is_an_error(link: Link, running: RunningBoard) -> None:
    address = link.hello().workspace_address
    running.reset()
    with pytest.raises((DeviceReset, LinkError)):
        link.read(address, 4)
    link.hello()
    link.write(address, b"good")
    assert link.read(address, 4) == b"good"


def test_a_runtime_that_hangs_can_be_reset(image: Image, link: Link, running: RunningBoard) -> None:
    endless = Task(image.symbols["tiny_spin"], (0xFFFF_FFFF,), repeat=100, deadline_s=4000.0)
    with pytest.raises(LinkTimeout):
        link.execute([endless], 0.3)
    assert running.is_alive()
    running.reset()
    address = link.hello().workspace_address
    link.write(address, b"good")
    assert link.read(address, 4) == b"good"


def test_a_fault_of_the_runtime_is_no_silence(board: Board, image: Image, link: Link) -> None:
    if board.is_host:
        pytest.skip("a process whose runtime faults dies; see the next test")
    if not isinstance(link, MonitorLink):
        pytest.skip("the runtime is on no stack while a debugger writes; see test_debug_link")
    nonce = link.hello().nonce
    address = image.symbols[FAULT_SYMBOL]
    assert kept_fault(link.read(address, FAULT_BYTES)) is None
    # What tasks cannot do, the host can: spoil the stack that the runtime is on.
    stack, top = image.symbols["utvm_task_stack_end"], image.symbols["ld_stack_top"]
    with pytest.raises((DeviceReset, LinkError)):
        link.write(stack, b"\xf1\xff\xff\xef" * ((top - stack) // 4))
    assert link.hello().nonce != nonce
    fault = kept_fault(link.read(address, FAULT_BYTES))
    assert fault is not None
    assert re.search(r"fault: ", fault.phrase), fault
    link.reset()
    link.hello()
    assert kept_fault(link.read(address, FAULT_BYTES)) is None


@pytest.mark.tools
def test_a_dead_process_is_no_silence() -> None:
    host = load_board("host")
    image = build_image(tiny_model(host), host)
    with start(host, image) as running:
        link = MonitorLink(running.stream)
        link.hello()
        assert running.is_alive()
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(LinkError):
            link.execute([Task(image.symbols["tiny_spin"], (1,))], EXECUTE_TIMEOUT_S)
        assert not running.is_alive()


@pytest.mark.tools
def test_close_leaves_neither_process_nor_descriptor(board: Board, image: Image) -> None:
    gc.collect()  # images of other tests hold their entries of the cache
    before = set(os.listdir("/proc/self/fd"))
    kind = board.link.kinds[0]
    running = start(board, image, has_debug_stream=needs_debugger(kind))
    open_link(running, kind, "{:#010x}".format).hello()
    pid = running.pid
    assert pid is not None and Path(f"/proc/{pid}").exists()
    running.close()
    running.close()
    assert not running.is_alive()
    assert not Path(f"/proc/{pid}").exists()
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(LinkError):
        running.stream.read(1, 0.1)


def test_an_idle_board_uses_no_processor_time(link: Link, running: RunningBoard) -> None:
    def used_ticks() -> int:
        fields = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    link.hello()
    used = []
    # On a loaded machine, what the board does before it is idle may take until later.
    for _ in range(5):
        before = used_ticks()
        time.sleep(0.4)
        used.append(used_ticks() - before)
        if used[-1] <= 4:
            return
    # A core that spins would use 40 of these hundredths of a second.
    raise AssertionError(f"the idle board used {used} hundredths of a second")
