"""The interface of a link: the four primitives, and the facts that they move.

There are three implementations: ``monitor.MonitorLink`` exchanges frames with the runtime's command
loop; a debug link halts the core and moves memory itself; ``in_process.InProcessLink`` calls a
machine within this process. Users of a link know only this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Task:
    """One call of a function on the device, ``repeat`` times over."""

    function: int  # address; with or without the target's code_bit
    # Up to messages.MAX_ARGUMENTS words; negative ones as two's complement of 32 bits.
    args: tuple[int, ...] = ()
    repeat: int = 1
    # The most time for all its calls together, by the device's clock; None: the rest of the
    # deadline of the list.
    deadline_s: float | None = None


@dataclass(frozen=True)
class Region:
    """Memory that the host may use."""

    address: int
    size: int  # bytes
    readable: bool
    writable: bool
    executable: bool


@dataclass(frozen=True)
class Hello:
    """The device's facts about itself."""

    protocol_version: int
    runtime_version: str  # "1.0"
    # Drawn again at every boot of the device.
    nonce: int
    # Longest payloads of a request and of a reply, in bytes.
    request_bytes: int
    reply_bytes: int
    ticks_per_second: int
    tick_unit: str  # "cycles", "nanoseconds" or "instructions"
    # Memory that the host lays out as it likes.
    workspace_address: int
    workspace_size: int  # bytes
    region_count: int
    image: str  # id that was built into the image; may be empty


class Link(Protocol):
    """A way to a device. Not safe for use from several threads at once."""

    def hello(self) -> Hello:
        """Begin a session: ask the device for all facts again."""

    def regions(self) -> tuple[Region, ...]:
        """What the device lets be read, written and executed."""

    def read(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes of the device's memory."""

    def write(self, address: int, data: bytes) -> None:
        """Copy ``data`` to the device's memory."""

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order; the ticks of every repeat of every task.

        ``timeout_s`` is for all of them together. A task that faults, or does not end within its
        deadline, is stopped: DeviceFault or TaskTimeout. Those after it do not run.
        """

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of ``size`` bytes of the device's memory, computed there."""

    def reset(self) -> None:
        """Restart the device; what was in its RAM is lost."""

    def close(self) -> None:
        """Let go of the stream. May be called again."""
