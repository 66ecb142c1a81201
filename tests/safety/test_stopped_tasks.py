"""Kernels that fault, run away or write where they must not: an error on that call, and only there.

After each of them the next call gives the right bytes, memory is what it was, and no more time was
lost than the deadline and two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from tiny_model import tiny_model

from tests.safety.bad_kernels import SOURCE
from utvm_deploy.base.errors import DeviceFault, LinkTimeout, TaskTimeout
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device.link.base import Link, Task
from utvm_deploy.device.link.fault import nearest_symbol
from utvm_deploy.device.probe import RunningBoard, needs_debugger, open_link, start
from utvm_deploy.project import Image, build_image
from utvm_deploy.targets.table import target_of

pytestmark = [pytest.mark.tools, pytest.mark.runtime]

DEADLINE_S = 0.2
# A call that is lost takes longer than this; none that ends in time does, on the busiest machine.
LOST_S = 30.0
DATA = bytes(range(64))
NOWHERE = 0xF000_0000


@dataclass(frozen=True)
class Session:
    """A link to an image with kernels that go wrong."""

    board: Board
    image: Image
    running: RunningBoard
    link: Link

    def task(self, name: str, *args: int, repeat: int = 1, deadline_s: float = DEADLINE_S) -> Task:
        return Task(self.image.symbols[name], args, repeat, deadline_s)

    @property
    def data(self) -> int:
        return self.link.hello().workspace_address

    def run(self, *tasks: Task) -> list[tuple[int, ...]]:
        return self.link.execute(tasks, LOST_S)


@pytest.fixture
def session(board: Board) -> Iterator[Session]:
    with session_on(board) as found:
        yield found


@contextmanager
def session_on(board: Board) -> Iterator[Session]:
    image = build_image(tiny_model(board, source=SOURCE), board)
    kind = board.link.kinds[0]
    with start(board, image, has_debug_stream=needs_debugger(kind)) as running:
        code_bit = target_of(board.cpu.core).code_bit
        link = open_link(running, kind, lambda pc: nearest_symbol(pc, image.symbols, code_bit))
        link.hello()
        yield Session(board, image, running, link)


def bad_tasks(session: Session) -> Iterator[tuple[str, Task]]:
    """What goes wrong, and the task that does."""
    board, symbols = session.board, session.image.symbols
    out = session.data + 128
    yield "a call of null", session.task("bad_null_call")
    yield "a read of nothing", session.task("bad_read", NOWHERE)
    yield "a write to nothing", session.task("bad_write", NOWHERE)
    yield "a write to null", session.task("bad_write", 0)
    yield "a write to code", session.task("bad_write", symbols["good_add"] & ~3)
    yield "an undefined instruction", session.task("bad_undefined")
    is_riscv = "ra" in board.cpu.target.faults.names
    if not is_riscv:  # it divides by zero: all bits of the quotient are set
        yield "a division by zero", session.task("bad_divide", 0, out)
    yield "an endless recursion", session.task("bad_recurse", 100_000_000)
    yield "a frame larger than the stack", session.task("bad_huge_frame", out)
    yield "a jump to the stack", session.task("bad_jump_to_data", 0)
    yield "a jump to nowhere", session.task("bad_jump_to_data", NOWHERE | 1)
    yield "a smashed frame", session.task("bad_smash", 64)
    yield "a smashed stack", session.task("bad_smash", 100_000)
    yield "a fault amid floating point", session.task("bad_float", NOWHERE, out)
    if board.project.timer is None:
        return
    vectors = symbols["reset_handler" if is_riscv else "vector_table"]
    yield "a write to the vectors", session.task("bad_write", vectors)
    yield "a write to the runtime's state", session.task("bad_write", symbols["utvm_fault"])
    yield "a write to the runtime's stack", session.task("bad_write", symbols["ld_stack_top"] - 64)
    yield "a read of the runtime's state", session.task("bad_read", symbols["utvm_boot_seed"])
    timer = board.project.timer.driver.setting("base")
    yield "a write to the timer", session.task("bad_write", timer + 8)
    if board.project.uart is not None and board.project.uart.settings:
        uart = board.project.uart.setting("base")
        yield "a write to a peripheral", session.task("bad_write", uart)
    if is_riscv:
        yield "a write to the memory protection", session.task("bad_protection")
        return
    yield "a write to the system's registers", session.task("bad_write", 0xE000_ED08)
    yield "a write to the MPU", session.task("bad_write", 0xE000_ED94)


@pytest.mark.emulator
def test_boards_with_many_regions_are_guarded() -> None:
    board = load_board("mps2_an386")
    flash, ram = board.memory
    small = 64 << 10
    others = [replace(ram, name=f"ram{at}", address=ram.end - small * (at + 1), size=small)
              for at in range(6)]  # fmt: skip
    memory = (flash, replace(ram, size=ram.size - 6 * small), *others)
    with session_on(replace(board, memory=memory)) as session:
        for name in ("good_add", "utvm_fault"):
            with pytest.raises(DeviceFault, match="faulted"):
                session.run(session.task("bad_write", session.image.symbols[name] & ~3))


def endless_tasks(session: Session) -> Iterator[tuple[str, Task]]:
    yield "an endless loop", session.task("bad_forever")
    yield "an endless sleep with interrupts off", session.task("bad_sleep")
    # Each within the deadline, all together not: a tenth of it on any of the boards.
    turns = 50_000_000 if session.board.is_host else 100_000
    yield "too many repeats", session.task("good_spin", turns, repeat=50)


def check_next_call(session: Session, what: str) -> None:
    """The next call gives the right bytes, at the usual place, in the same boot."""
    session.link.write(session.data, DATA)
    session.run(session.task("good_add", session.data, len(DATA), 3))
    expected = bytes((byte + 3) % 256 for byte in DATA)
    assert session.link.read(session.data, len(DATA)) == expected, f"after {what}"


def test_a_fault_is_an_error_of_its_call(session: Session) -> None:
    nonce = session.link.hello().nonce
    before = session.link.regions()
    keep = session.data + 4096
    session.link.write(keep, DATA)
    for what, task in bad_tasks(session):
        began_s = time.monotonic()
        good = session.task("good_add", session.data, 8, 1)
        try:
            session.run(good, good, task, good)
        except DeviceFault as error:
            assert error.index == 2, what
            assert error.detail == 0, what
            assert str(error).startswith("task 2"), what
            assert "faulted" in str(error), what
        else:
            pytest.fail(f"{what} was no fault")
        assert time.monotonic() - began_s < LOST_S, what
        check_next_call(session, what)
    # RAM is what it was, and it is still the first boot.
    assert session.link.read(keep, len(DATA)) == DATA
    assert session.link.hello().nonce == nonce
    assert session.link.regions() == before


def test_what_does_not_end_is_stopped(session: Session) -> None:
    nonce = session.link.hello().nonce
    for what, task in endless_tasks(session):
        began_s = time.monotonic()
        with pytest.raises(TaskTimeout, match="did not end within its deadline") as caught:
            session.run(session.task("good_add", session.data, 8, 1), task)
        assert caught.value.index == 1, what
        assert time.monotonic() - began_s < LOST_S, what
        check_next_call(session, what)
    assert session.link.hello().nonce == nonce


def test_a_deadline_passes_at_any_instruction_before_the_task(session: Session) -> None:
    """Each is a little later than the last one: in the runtime, on the way to the task, in it."""
    for us in range(1, 81):
        with pytest.raises(TaskTimeout):
            session.run(session.task("bad_forever", deadline_s=us * 1e-6))
    check_next_call(session, "short deadlines")


def test_a_task_within_its_deadline_is_left_alone(session: Session) -> None:
    """The deadline is for all its calls, and another one's is not its own."""
    recurse = session.task("bad_recurse", 20, repeat=50, deadline_s=10.0)
    for _ in range(5):
        assert len(session.run(recurse, session.task("good_add", session.data, 1, 1))) == 2


def test_the_first_fault_ends_the_batch(session: Session) -> None:
    session.link.write(session.data, bytes(4))
    count = session.task("good_add", session.data, 1, 1, repeat=3)
    with pytest.raises(DeviceFault) as caught:
        session.run(count, count, session.task("bad_read", NOWHERE, repeat=5), count, count)
    assert (caught.value.index, caught.value.detail) == (2, 0)
    assert session.link.read(session.data, 4) == bytes([6, 0, 0, 0])


def test_a_fault_says_where(session: Session) -> None:
    with pytest.raises(DeviceFault) as caught:
        session.run(session.task("bad_write", NOWHERE))
    error = caught.value
    assert error.address == NOWHERE
    start_of = session.image.symbols["bad_write"] & ~1
    assert error.pc is not None and 0 <= error.pc - start_of < 16
    assert "at address 0xf0000000, in bad_write+" in str(error)
    with pytest.raises(TaskTimeout) as late:
        session.run(session.task("bad_forever"))
    assert "it was in bad_forever+" in str(late.value)


def test_times_are_the_same_after_a_fault(session: Session) -> None:
    if session.link.hello().tick_unit != "instructions":
        pytest.skip("this board's ticks depend on caches, or are a clock's")
    floating = session.board.cpu.fpu != "none"
    tasks = [session.task("good_add", session.data, 40, 1, repeat=3)]
    tasks += [session.task("good_float", session.data, repeat=3)] * floating
    before = session.run(*tasks)
    assert all(len(set(of_task)) == 1 for of_task in before)
    for what, task in (*bad_tasks(session), *endless_tasks(session)):
        with pytest.raises((DeviceFault, TaskTimeout)):
            session.run(task)
        assert session.run(*tasks) == before, f"after {what}"


def test_the_host_has_a_deadline_of_its_own(session: Session) -> None:
    """A device that does not stop the task by itself is given up in time, and reset."""
    session.link.write(session.data, DATA)
    began_s = time.monotonic()
    with pytest.raises(LinkTimeout):
        session.link.execute([session.task("bad_forever", deadline_s=4000.0)], DEADLINE_S)
    assert time.monotonic() - began_s < LOST_S
    session.running.reset()
    check_next_call(session, "a reset by the host")
