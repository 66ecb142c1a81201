"""Tasks to EXECUTE payloads: as many as fit one request and whose ticks fit one reply."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import DeviceError, DeviceReset, StoppedTask
from utvm_deploy.device.link.base import Hello, Task
from utvm_deploy.device.link.messages import MAX_ARGUMENTS, OUTCOME, TASK, Status
from utvm_deploy.device.link.replies import check_size

_MAX_REPEAT = 0xFFFF
_TICKS_BYTES = 8
# 71 minutes: the host watches over longer deadlines.
_MAX_DEADLINE_US = 0xFFFFFFFF


@dataclass(frozen=True)
class TaskList:
    """One EXECUTE."""

    payload: bytes
    # Which tasks of the caller's it holds, and how often each is called in this list.
    positions: tuple[int, ...]
    repeats: tuple[int, ...]

    @property
    def calls(self) -> int:
        return sum(self.repeats)


def check_tasks(tasks: Sequence[Task]) -> None:
    """DeviceError if the protocol cannot express a task."""
    for position, task in enumerate(tasks):
        if len(task.args) > MAX_ARGUMENTS:
            raise DeviceError(
                f"task {position} has {len(task.args)} arguments, a task can pass "
                f"{MAX_ARGUMENTS}: put them in memory and pass its address",
                status=Status.ARGUMENTS,
                index=position,
                detail=len(task.args),
            )
        for word in (task.function, *task.args):
            if not -(1 << 31) <= word < 1 << 32:
                raise DeviceError(
                    f"task {position} passes {word:#x}, which is not a word of 32 bits: is the "
                    "image linked below 4 GiB?",
                    status=Status.ARGUMENTS,
                    index=position,
                )
        if task.repeat < 0:
            raise DeviceError(
                f"task {position} repeats {task.repeat} times; 0 or more is possible",
                status=Status.ARGUMENTS,
                index=position,
            )


def deadline_us(task: Task, timeout_s: float) -> int:
    """The deadline that the device gets; a task without one has the deadline of the list."""
    deadline_s = timeout_s if task.deadline_s is None else task.deadline_s
    return max(1, math.ceil(min(deadline_s * 1e6, _MAX_DEADLINE_US)))


def split_tasks(
    tasks: Sequence[Task], room: Callable[[], tuple[int, int]], timeout_s: float
) -> Iterator[TaskList]:
    """``tasks`` in order, in the fewest lists; a task with many repeats may span several.

    ``room`` gives the bytes for tasks and for ticks of the list that is being filled.
    """
    records: list[bytes] = []
    positions: list[int] = []
    repeats: list[int] = []

    def full() -> TaskList:
        made = TaskList(b"".join(records), tuple(positions), tuple(repeats))
        for started in (records, positions, repeats):
            started.clear()
        return made

    for position, task in enumerate(tasks):
        size = TASK.size_bytes + 4 * len(task.args)
        left = task.repeat
        while left:
            request_bytes, reply_bytes = room()
            calls_room = max(reply_bytes // _TICKS_BYTES, 1)
            used = sum(map(len, records))
            if records and (used + size > request_bytes or sum(repeats) >= calls_room):
                yield full()
                continue
            repeat = min(left, calls_room - sum(repeats), _MAX_REPEAT)
            words = [word & 0xFFFFFFFF for word in task.args]
            records.append(
                TASK.pack(
                    task.function & 0xFFFFFFFF, repeat, len(words), deadline_us(task, timeout_s)
                )
                + struct.pack(f"<{len(words)}I", *words)
            )
            positions.append(position)
            repeats.append(repeat)
            left -= repeat
    if records:
        yield full()


def run_task_lists(
    tasks: Sequence[Task],
    room: Callable[[], tuple[int, int]],
    timeout_s: float,
    run: Callable[[bytes, str, float], bytes],
) -> list[tuple[int, ...]]:
    """The ticks of every repeat of every task, in as many lists as needed.

    ``run`` takes an EXECUTE's payload, a description of it, and the seconds that remain. It returns
    the reply after the outcome. Its errors say which of the caller's tasks they are about. If
    earlier lists ran, an error has no status of a refusal: that would say that nothing ran.
    """
    check_tasks(tasks)
    deadline = time.monotonic() + timeout_s
    ticks: list[list[int]] = [[] for _ in tasks]
    has_run = False
    for one in split_tasks(tasks, room, timeout_s):
        what = f"to run tasks {one.positions[0]} to {one.positions[-1]}"
        try:
            data = run(one.payload, what, deadline - time.monotonic())
        except DeviceError as error:
            if error.status is not None and error.index < len(one.positions):
                error.index = one.positions[error.index]
            if has_run and not isinstance(error, DeviceReset | StoppedTask):
                error.status = None
            raise
        has_run = True
        check_size(data, _TICKS_BYTES * one.calls, what)
        times = iter(struct.unpack(f"<{one.calls}Q", data))
        for position, repeat in zip(one.positions, one.repeats, strict=True):
            ticks[position].extend(next(times) for _ in range(repeat))
    return [tuple(of_task) for of_task in ticks]


def whole_room(hello: Hello) -> tuple[int, int]:
    """What a list may have if nothing gets lost: bytes for tasks, and for ticks."""
    return hello.request_bytes, hello.reply_bytes - OUTCOME.size_bytes
