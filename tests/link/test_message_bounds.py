"""What no call goes beyond: its deadline, its region, the room of a request; and what it undoes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.link.test_damaged_memory import HELLO, MAILBOX_AT, SYMBOLS, Core
from utvm_deploy.base.errors import DeviceError, LinkTimeout
from utvm_deploy.device.link.base import Region, Task
from utvm_deploy.device.link.gdb.combined import BULK_BYTES, CombinedLink
from utvm_deploy.device.link.gdb.debug_link import DebugLink
from utvm_deploy.device.link.gdb.dialogue import Dialogue
from utvm_deploy.device.link.messages import MAILBOX, PROTOCOL_VERSION, TASK, Status
from utvm_deploy.device.link.replies import region_of
from utvm_deploy.device.link.task_lists import run_task_lists

RAM = Region(0x100, 0x20, readable=True, writable=True, executable=True)


def test_lists_of_tasks_share_one_deadline_and_fit_their_requests() -> None:
    left, sizes = list[float](), list[int]()

    def run(payload: bytes, what: str, left_s: float) -> bytes:
        left.append(left_s)
        sizes.append(len(payload))
        return bytes(8 * (len(payload) // (TASK.size_bytes + 8)))

    tasks = [Task(0x200, (1, 2))] * 10
    room = 3 * (TASK.size_bytes + 8) + 4
    assert run_task_lists(tasks, lambda: (room, 1000), 60.0, run) == [(0,)] * 10
    assert max(sizes) == 3 * (TASK.size_bytes + 8) and len(sizes) == 4
    assert 60.0 > left[0] > left[1] > left[2] > left[3] > 0


@pytest.mark.parametrize(
    ("address", "size", "is_inside"),
    [
        *[(0x100, 0x20, True), (0x11F, 1, True), (0x108, 0, True), (0x120, 0, True)],
        *[(0xFF, 1, False), (0xFF, 2, False), (0x11F, 2, False), (0x108, 0x20, False)],
        *[(0x121, 0, False), (0x120, 1, False), (0x108, -1, False)],
    ],
)
def test_a_copy_is_inside_of_a_region(address: int, size: int, is_inside: bool) -> None:
    if is_inside:
        assert region_of([RAM], address, size, "readable", "to read") is RAM
        return
    with pytest.raises(DeviceError) as caught:
        region_of([RAM], address, size, "readable", "to read")
    assert caught.value.status == Status.ADDRESS


def test_a_question_within_a_call_ends_with_the_call() -> None:
    class Silent:
        def read(self, max_bytes: int, timeout_s: float) -> bytes:
            assert timeout_s < 1
            return b""

        def write(self, data: bytes, timeout_s: float) -> None:
            pass

    dialogue = Dialogue(Silent(), 60.0)  # type: ignore[arg-type]
    with (
        pytest.raises(LinkTimeout),
        dialogue.within(0.01),
        dialogue.within(60.0),
    ):
        dialogue.ask(b"?", "for a stop")


class Standing(Core):
    """A core with one region, whose mailbox keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write_memory(self, address: int, data: bytes) -> None:
        if address > MAILBOX_AT:
            self.written.append(data)

    def read_memory(self, address: int, size: int) -> bytes:
        opcode = int.from_bytes(self.written[-1][:4], "little") if self.written else 0
        if address == MAILBOX_AT:
            return MAILBOX.pack(PROTOCOL_VERSION, 7, 0x100, 0x4000, opcode | 0x80, 12, 0, 0)
        return bytes(size)

    def within(self, _seconds: float) -> Any:
        return contextlib.nullcontext()


def test_all_code_that_was_written_is_told_to_the_runtime() -> None:
    core = Standing()
    link = DebugLink(core, SYMBOLS)  # type: ignore[arg-type]
    link._regions, link._hello, link._mailbox = (RAM,), HELLO, {"request": 0x4000}
    for address, size in ((0x110, 8), (0x104, 4), (0x10C, 2)):
        link.write(address, bytes(size))
    link.checksum(0x100, 4)
    begin, size = (int.from_bytes(core.written[-1][at : at + 4], "little") for at in (8, 12))
    assert (begin, begin + size) == (0x104, 0x118)


def test_a_core_runs_on_although_a_copy_was_refused() -> None:
    class Refused(Core):
        def read_memory(self, address: int, size: int) -> bytes:
            raise DeviceError("no memory there")

    class Line:
        def regions(self) -> tuple[Region, ...]:
            return (Region(0, 2 * BULK_BYTES, readable=True, writable=True, executable=False),)

    core = Refused()
    link = CombinedLink(Line(), core)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="no memory there"):
        link.read(0, BULK_BYTES)
    assert core.told == ["interrupt", "resume"]
