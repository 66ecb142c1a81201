"""Devices and debug servers that never come to an end: every call ends at the time it was given.

The clock is a number here, which only the double moves, so nothing waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.link.test_monitor import Answering, opening
from utvm_deploy.base.errors import DeviceError, LinkError, LinkTimeout
from utvm_deploy.device.link import deadlines, monitor, waits
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.frame import Frame, encode_frame
from utvm_deploy.device.link.gdb import client as gdb_client
from utvm_deploy.device.link.gdb import debug_link as debug
from utvm_deploy.device.link.gdb import dialogue as gdb_dialogue
from utvm_deploy.device.link.gdb.client import GdbClient, GdbTimeouts
from utvm_deploy.device.link.gdb.flash import write_flash
from utvm_deploy.device.link.gdb.packets import encode_packet
from utvm_deploy.device.link.messages import BY_NAME, OUTCOME, REGION, REPLY_BIT
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.replies import MAX_REGIONS
from utvm_deploy.targets.arm_m.target import ARM_M

#: Seconds that the slow ones take over each portion.
PORTION_S = 0.1


@dataclass
class Clock:
    """``time`` for the modules that wait."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        assert self.now_s < 100_000, "the call does not end"
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (monitor, waits, gdb_dialogue, gdb_client):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Endless(Answering):
    """A device that greets, then answers each request with what ``talk`` yields, bit by bit."""

    def __init__(
        self, clock: Clock, talk: Callable[[Frame], Iterator[bytes]], region_count: int = 0
    ) -> None:
        super().__init__(*opening(region_count))
        self._clock = clock
        self._talk = talk
        self._talking: Iterator[bytes] = iter(())

    def answer(self, request: Frame) -> None:
        if request.opcode in (BY_NAME["READ"].opcode, BY_NAME["EXECUTE"].opcode):
            self._talking = self._talk(request)
        else:
            super().answer(request)

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        if self._out:
            return super().read(max_bytes, timeout_s)
        self._clock.now_s += min(PORTION_S, max(timeout_s, 0.001))
        return next(self._talking, b"")


def reply_to(request: Frame, payload: bytes, back: int = 0) -> bytes:
    return encode_frame(
        Frame(
            request.opcode | REPLY_BIT,
            request.sequence - back,
            request.session,
            OUTCOME.pack(0, 0, 0) + payload,
        )
    )


def stale_replies(request: Frame) -> Iterator[bytes]:
    while True:
        yield reply_to(request, b"old", back=1)


def trickle(request: Frame) -> Iterator[bytes]:
    """A frame whose end never comes."""
    yield b"\0"
    while True:
        yield b"\1"


def log_output(request: Frame) -> Iterator[bytes]:
    while True:
        yield b"E: out of coffee\r\n\0"


def byte_a_second(request: Frame) -> Iterator[bytes]:
    """The right reply, so slowly that no line is."""
    for byte in reply_to(request, bytes(128)):
        yield b""
        yield bytes([byte])


@pytest.mark.parametrize("talk", [stale_replies, trickle, log_output])
@pytest.mark.parametrize("call", ["read", "execute"])
def test_a_device_that_talks_for_ever(
    clock: Clock, talk: Callable[[Frame], Iterator[bytes]], call: str
) -> None:
    link = MonitorLink(Endless(clock, talk))
    link.hello()
    began_s = clock.now_s
    with pytest.raises(LinkTimeout, match="did not answer within"):
        if call == "read":
            link.read(0x2000_0000, 128)
        else:
            link.execute([Task(0x100)], 5.0)
    # 5 s for the exchange, and for the bytes what the slowest line takes.
    assert clock.now_s - began_s < 6.0


def test_a_reply_slower_than_any_line(clock: Clock) -> None:
    link = MonitorLink(Endless(clock, byte_a_second))
    link.hello()
    began_s = clock.now_s
    with pytest.raises(LinkTimeout):
        link.read(0x2000_0000, 128)
    assert clock.now_s - began_s < 6.0


def test_many_pieces_that_are_each_in_time_are_not_enough(clock: Clock) -> None:
    """Every exchange of a long read ends just before its deadline; the read does all the same."""

    def late(request: Frame) -> Iterator[bytes]:
        yield from [b""] * int(4.5 / PORTION_S)
        size = int.from_bytes(request.payload[4:8], "little")
        yield reply_to(request, bytes(size))

    link = MonitorLink(Endless(clock, late))
    size = 100 * (link.hello().reply_bytes - OUTCOME.size_bytes)
    began_s = clock.now_s
    with pytest.raises(LinkTimeout):
        link.read(0x2000_0000, size)
    slowest_line_s = deadlines.Speeds().host_s(line_bytes=2 * size, exchanges=100)
    assert clock.now_s - began_s < slowest_line_s + 5.0 < 100 * 4.5


class Regions(Endless):
    """Lists one region in each reply, and takes its time."""

    def answer(self, request: Frame) -> None:
        if request.opcode != BY_NAME["REGIONS"].opcode:
            super().answer(request)
            return
        self._clock.now_s += 4.0
        self._out += reply_to(request, REGION.pack(0, 16, 7))


def test_a_table_of_regions_that_is_longer_than_any_board_has(clock: Clock) -> None:
    link = MonitorLink(Regions(clock, trickle, region_count=65_535))
    with pytest.raises(DeviceError, match=r"it has 65535 regions, and at most 1024 are read"):
        link.regions()


def test_a_table_of_regions_that_comes_slowly(clock: Clock) -> None:
    link = MonitorLink(Regions(clock, trickle, region_count=MAX_REGIONS))
    link.hello()
    began_s = clock.now_s
    with pytest.raises(LinkTimeout, match="to list its regions"):
        link.regions()
    assert clock.now_s - began_s < 100.0 < MAX_REGIONS * 4.0


# Debug servers.

TIMES = GdbTimeouts()


class Server:
    """Answers packets by a function; ``chatter`` comes instead where that has no answer."""

    def __init__(self, clock: Clock, answer: Callable[[bytes], Iterator[bytes]]) -> None:
        self._clock = clock
        self._answer = answer
        self._talking: Iterator[bytes] = iter(())

    def write(self, data: bytes, timeout_s: float) -> None:
        if data.startswith(b"$"):
            self._talking = self._answer(data[1:-3])

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        self._clock.now_s += min(PORTION_S, max(timeout_s, 0.001))
        if timeout_s <= 0:
            return b""
        return next(self._talking, b"")

    def close(self) -> None:
        pass


def until_reading(body: bytes) -> Iterator[bytes]:
    """A plain server up to the first question for memory."""
    answers = {b"?": b"S05"}
    yield b"+" + encode_packet(b"PacketSize=400" if body[:2] == b"qS" else answers.get(body, b"OK"))


def console(body: bytes) -> Iterator[bytes]:
    while True:
        yield encode_packet(b"O" + b"warning\n".hex().encode())


def notifications(body: bytes) -> Iterator[bytes]:
    while True:
        yield b"%Stop:T05#a0"


def slow_bytes(body: bytes) -> Iterator[bytes]:
    for byte in b"+" + encode_packet(b"00" * 256):
        yield from [b""] * 9
        yield bytes([byte])


def a_byte_each(body: bytes) -> Iterator[bytes]:
    """Each answer is in time and brings one byte."""
    yield from [b""] * 40
    yield b"+" + encode_packet(b"00")


@pytest.mark.parametrize("talk", [console, notifications, slow_bytes, a_byte_each])
@pytest.mark.parametrize("call", ["read", "stop", "greet", "object", "command"])
def test_a_server_that_never_comes_to_an_end(
    clock: Clock, talk: Callable[[bytes], Iterator[bytes]], call: str
) -> None:
    has_begun = call == "greet"

    def answer(body: bytes) -> Iterator[bytes]:
        return talk(body) if has_begun else until_reading(body)

    client = GdbClient(Server(clock, answer), ARM_M, TIMES)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: client.read_memory(0x2000_0000, 256),
        "stop": client.step,
        "greet": client.greet,
        "object": lambda: client.read_object("features", "target.xml"),
        "command": lambda: client.command("reset halt"),
    }
    if not has_begun:
        client.greet()
    has_begun = True
    began_s = clock.now_s
    # Some of these are answers, though useless ones: what matters is that the call ends.
    with contextlib.suppress(LinkError, DeviceError):
        calls[call]()
    assert clock.now_s - began_s <= TIMES.greet_s + TIMES.reply_s


def test_a_file_of_the_server_that_has_no_end(clock: Clock) -> None:
    has_begun = False

    def answer(body: bytes) -> Iterator[bytes]:
        if not has_begun:
            return until_reading(body)
        return iter([*[b""] * 40, b"+" + encode_packet(b"m<")])

    client = GdbClient(Server(clock, answer), ARM_M, TIMES)
    client.greet()
    has_begun = True
    began_s = clock.now_s
    with pytest.raises(LinkTimeout):
        client.read_object("features", "target.xml")
    assert clock.now_s - began_s < TIMES.command_s + TIMES.reply_s


@pytest.mark.parametrize("block", ["0x80", "0x40000000"])
def test_writing_flash_ends_however_the_server_parts_it(clock: Clock, block: str) -> None:
    """Each answer is in time for its step, and the server says how many steps there are."""
    memory = (
        '<memory type="flash" start="0" length="0x80000000">'
        f'<property name="blocksize">{block}</property></memory>'
    )

    def answer(body: bytes) -> Iterator[bytes]:
        reply = b"OK"
        if body.startswith(b"qSupported"):
            reply = b"PacketSize=40;qXfer:memory-map:read+"
        elif body == b"?":
            reply = b"S05"
        elif body.startswith(b"qXfer:memory-map:read::"):
            start = int(body.split(b":")[4].split(b",")[0], 16)
            part = memory.encode()[start : start + 32]
            reply = (b"m" if start + 32 < len(memory) else b"l") + part
        elif body.startswith(b"vFlash"):
            yield from [b""] * int(29 / PORTION_S)
            if body.startswith(b"vFlashErase") and block != "0x80":
                yield from [b""] * int(90_000 / PORTION_S)
        yield b"+" + encode_packet(reply)

    client = GdbClient(Server(clock, answer), ARM_M, TIMES)
    client.greet()
    began_s = clock.now_s
    with pytest.raises(LinkTimeout):
        write_flash(client, [(0, bytes(100_000))])
    assert clock.now_s - began_s < 400


def test_every_wait_of_the_debug_link_is_the_clients() -> None:
    """Else its doubles here would not see it."""
    assert not hasattr(debug, "time")
