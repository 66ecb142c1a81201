"""A link to an image that a machine runs within this process: no line, no frames, no runtime."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence

from utvm_deploy.base.errors import BuildError, LinkClosed
from utvm_deploy.device.link.base import Hello, Region, Task
from utvm_deploy.device.link.fault import stopped_error
from utvm_deploy.device.link.messages import MAX_IMAGE_BYTES, PROTOCOL_VERSION, Status
from utvm_deploy.device.link.replies import refusal, region_of
from utvm_deploy.device.link.task_lists import check_tasks
from utvm_deploy.targets.contract.fault import FaultWords
from utvm_deploy.targets.contract.machine import Machine, Stopped

#: As of the host's port: what one list may have, so that queues are cut as elsewhere.
_PAYLOAD_BYTES = 32768
_NEEDED = ("utvm_version", "utvm_image_id", "utvm_workspace", "utvm_workspace_end")


class InProcessLink:
    """A ``Link``: ``start`` gives the machine at power-up, ``symbols`` are the image's.

    Raises BuildError for an image that lacks what our images have.

    A tick is an instruction, of which ``clock_hz`` are taken for a second in deadlines.
    """

    def __init__(
        self,
        start: Callable[[], Machine],
        symbols: Mapping[str, int],
        clock_hz: int,
        faults: FaultWords,
        place_of: Callable[[int], str],
    ) -> None:
        missing = sorted({*_NEEDED} - symbols.keys())
        if missing:
            raise BuildError(
                f"the image has no {', '.join(missing)}; build it again with this version"
            )
        self._start = start
        self._symbols = symbols
        self._clock_hz = clock_hz
        self._faults = faults
        self._place_of = place_of
        self._current: Machine | None = start()
        self._nonce = secrets.randbits(32) | 1

    @property
    def _machine(self) -> Machine:
        if self._current is None:
            raise LinkClosed("the link to the board was closed; connect again")
        return self._current

    def hello(self) -> Hello:
        """The facts that the image has about itself."""
        version = int.from_bytes(self._machine.read(self._symbols["utvm_version"], 4), "little")
        name = self._machine.read(self._symbols["utvm_image_id"], MAX_IMAGE_BYTES)
        begin, end = self._symbols["utvm_workspace"], self._symbols["utvm_workspace_end"]
        return Hello(
            PROTOCOL_VERSION,
            f"{version >> 16}.{version & 0xFFFF}",
            self._nonce,
            _PAYLOAD_BYTES,
            _PAYLOAD_BYTES,
            self._clock_hz,
            "instructions",
            begin,
            end - begin,
            len(self.regions()),
            name.rstrip(b"\0").decode("ascii", "replace"),
        )

    def regions(self) -> tuple[Region, ...]:
        """The workspace, and the image's code."""
        begin, end = self._symbols["utvm_workspace"], self._symbols["utvm_workspace_end"]
        code, size = self._machine.code
        return (
            Region(begin, end - begin, readable=True, writable=True, executable=True),
            Region(code, size, readable=True, writable=False, executable=True),
        )

    def _check(self, address: int, size: int, right: str, what: str) -> str:
        what = f"{what} {size} bytes at {address:#010x}"
        region_of(self.regions(), address, size, right, what)
        return what

    def read(self, address: int, size: int) -> bytes:
        """Copy memory."""
        self._check(address, size, "readable", "to read")
        return self._machine.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Copy to memory."""
        self._check(address, len(data), "writable", "to write")
        self._machine.write(address, data)

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of memory."""
        self._check(address, size, "readable", "to checksum")
        return zlib.crc32(self._machine.read(address, size))

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order; the instructions of every repeat of every task."""
        check_tasks(tasks)
        for index, task in enumerate(tasks):
            function = task.function & 0xFFFFFFFF
            if not self._machine.can_call(function):
                outcome = {"status": int(Status.ADDRESS), "index": index, "detail": function}
                raise refusal("EXECUTE", outcome, f"to run tasks 0 to {len(tasks) - 1}")
        return [self._run(index, task, timeout_s) for index, task in enumerate(tasks)]

    def _run(self, index: int, task: Task, timeout_s: float) -> tuple[int, ...]:
        seconds = timeout_s if task.deadline_s is None else task.deadline_s
        left = max(int(seconds * self._clock_hz), 1)
        ticks: list[int] = []
        for _ in range(task.repeat):
            try:
                taken = self._machine.call(task.function & 0xFFFFFFFF, task.args, max(left, 1))
            except Stopped as stopped:
                status = Status.TIMEOUT if stopped.is_late else Status.FAULT
                outcome = {"status": int(status), "index": index, "detail": len(ticks)}
                fault = self._faults.decode(stopped.words)
                raise stopped_error(outcome, fault, self._place_of) from stopped
            left -= taken
            ticks.append(taken)
        return tuple(ticks)

    def reset(self) -> None:
        """Start the image again; what was in its memory is lost."""
        _ = self._machine
        self._current = self._start()
        self._nonce = (self._nonce + 2) & 0xFFFFFFFF

    def close(self) -> None:
        """Let go of the machine. May be called again."""
        self._current = None
