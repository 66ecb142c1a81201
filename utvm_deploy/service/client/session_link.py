"""The primitives of a device that is connected to another computer: one round trip each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.errors import LinkError
from utvm_deploy.device.link.base import Hello, Region, Task
from utvm_deploy.device.link.deadlines import Speeds
from utvm_deploy.device.link.messages import MIN_PAYLOAD_BYTES, TickUnit
from utvm_deploy.service.client import session_messages
from utvm_deploy.service.client.session_exchange import Exchange

#: The way there and back, and a server that is busy with other clients.
WAY_S = 30.0
#: Greeting and restarting, which have no size.
BOOT_S = 60.0
#: The fewest bytes that an exchange of the link at the board moves.
_CHUNK_BYTES = 128
#: A board has fewer regions.
_MOST_REGIONS = 1024
_MOST_TEXT = 200
_TICK_UNITS = frozenset(unit.name.lower() for unit in TickUnit)


class RemoteLink:
    """A ``link.base.Link``. The requests wait longer than the link over there does.

    So the error of a device that does not answer is that link's.
    """

    def __init__(self, exchange: Exchange, speeds: Speeds) -> None:
        self._exchange = exchange
        self._speeds = speeds
        self._region_count: int | None = None

    def hello(self) -> Hello:
        """Begin a session: ask the device for all facts again."""
        reply = self._exchange.ask("hello", BOOT_S + WAY_S)
        hello: Hello = _made(Hello, reply.fields.get("hello"))
        is_right = hello.tick_unit in _TICK_UNITS and hello.ticks_per_second > 0
        is_right &= min(hello.request_bytes, hello.reply_bytes) >= MIN_PAYLOAD_BYTES
        if not is_right:
            raise LinkError("the server's hello makes no sense; is it of another version?")
        self._region_count = hello.region_count
        return hello

    def regions(self) -> tuple[Region, ...]:
        """What the device lets be read, written and executed."""
        reply = self._exchange.ask("regions", self._moving_s(24 * _MOST_REGIONS))
        rows = reply.fields.get("regions")
        most = _MOST_REGIONS if self._region_count is None else self._region_count
        least = 0 if self._region_count is None else most
        if not isinstance(rows, list) or not least <= len(rows) <= min(most, _MOST_REGIONS):
            raise LinkError("the server's list of regions is not as long as the device says")
        return tuple(_made(Region, row) for row in rows)

    def read(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes of the device's memory; each MiB takes a round trip."""
        data = bytearray()
        while len(data) < size:
            part = min(session_messages.PART_BYTES, size - len(data))
            at = address + len(data)
            got = self._exchange.ask("read", self._moving_s(part), address=at, size=part).body
            if len(got) != part:
                raise LinkError(f"asked for {part} bytes, the server sent {len(got)}")
            data += got
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        """Copy ``data`` to the device's memory; each MiB takes a round trip."""
        for at in range(0, len(data), session_messages.PART_BYTES):
            part = bytes(data[at : at + session_messages.PART_BYTES])
            self._exchange.ask("write", self._moving_s(len(part)), part, address=address + at)

    def execute(self, tasks: Sequence[Task], timeout_s: float) -> list[tuple[int, ...]]:
        """Run ``tasks`` in order, all in one round trip."""
        rows = [
            [task.function, list(task.args), task.repeat, _seconds(task.deadline_s)]
            for task in tasks
        ]
        timeout_s = min(timeout_s, session_messages.LONGEST_TIMEOUT_S)
        reply = self._exchange.ask("execute", timeout_s + WAY_S, tasks=rows, timeout_s=timeout_s)
        words = session_messages.unpack_words(reply.body)
        if len(words) != sum(task.repeat for task in tasks):
            raise LinkError(f"the server sent {len(words)} ticks, not one for each call")
        ticks, first = [], 0
        for task in tasks:
            ticks.append(words[first : first + task.repeat])
            first += task.repeat
        return ticks

    def checksum(self, address: int, size: int) -> int:
        """CRC-32 of ``size`` bytes of the device's memory, computed there."""
        timeout_s = WAY_S + self._speeds.host_s(self._speeds.task_s(size))
        reply = self._exchange.ask("checksum", timeout_s, address=address, size=size)
        return integer(reply, "crc")

    def reset(self) -> None:
        """Restart the device; what was in its RAM is lost."""
        self._exchange.ask("reset", 2 * BOOT_S + WAY_S)

    def close(self) -> None:
        """End the session. May be called again."""
        self._exchange.close()

    def _moving_s(self, size: int) -> float:
        exchanges = -(-size // _CHUNK_BYTES)
        return WAY_S + self._speeds.host_s(line_bytes=size + 64 * exchanges, exchanges=exchanges)


def _seconds(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else min(deadline_s, session_messages.LONGEST_TIMEOUT_S)


def integer(reply: session_messages.Message, name: str) -> int:
    """A number of a reply; LinkError if it is none."""
    value = reply.fields.get(name)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise LinkError(f"the server's answer has no {name} of 32 bits")
    return value


def _made(kind: type[Any], fields: object) -> Any:
    """A dataclass of plain values, from what its ``asdict`` gave."""
    wanted: Mapping[str, Any] = {one.name: one.type for one in dataclasses.fields(kind)}
    if isinstance(fields, dict) and fields.keys() == wanted.keys():
        types = {name: type(value).__name__ for name, value in fields.items()}
        if types == wanted and all(map(_is_plain, fields.values())):
            return kind(**fields)
    raise LinkError(
        f"the server's {kind.__name__.lower()} makes no sense; is it of another version?"
    )


def _is_plain(value: object) -> bool:
    """Whether a device can have said that: numbers of 64 bits, text of one line."""
    if isinstance(value, int):
        return 0 <= value < 1 << 64
    return isinstance(value, str) and value.isprintable() and len(value) <= _MOST_TEXT
