"""Devices and servers whose replies have another size than they declare, or than was asked for.

Every truncated and every lengthened reply is one sentence, and never a value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.link.test_damaged_memory import MAILBOX_AT, SYMBOLS, Core
from tests.link.test_monitor import Answering, opening
from utvm_deploy.base.errors import DeviceError, LinkError, LinkTimeout
from utvm_deploy.device.link.base import Hello, Link, Region, Task
from utvm_deploy.device.link.deadlines import Speeds
from utvm_deploy.device.link.frame import Frame, encode_frame
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.gdb.debug_link import DebugLink
from utvm_deploy.device.link.gdb.packets import encode_packet
from utvm_deploy.device.link.messages import (
    BY_NAME,
    FAULT,
    MAILBOX,
    OUTCOME,
    PROTOCOL_VERSION,
    REGION,
    REPLY_BIT,
    Status,
)
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts
from utvm_deploy.service.client.session_exchange import Exchange
from utvm_deploy.service.client.session_link import RemoteLink
from utvm_deploy.service.client.session_messages import decode, encode
from utvm_deploy.service.cluster.session_child import LENGTH, serve
from utvm_deploy.targets.arm_m.target import ARM_M

REGIONS = 3
RIGHT = REGION.pack(0x2000_0000, 16, 7) * REGIONS
#: The calls of a link, and the right reply to each after its outcome.
CALLS: dict[str, tuple[Callable[[Link], object], bytes]] = {
    "HELLO": (lambda link: link.hello(), b""),
    "OPEN": (lambda link: link.hello(), opening(REGIONS)[0].payload[8:]),
    "REGIONS": (lambda link: link.regions(), RIGHT),
    "READ": (lambda link: link.read(0x2000_0000, 16), bytes(16)),
    "WRITE": (lambda link: link.write(0x2000_0000, bytes(4)), b""),
    "EXECUTE": (lambda link: link.execute([Task(0x100, repeat=2)], 0.2), bytes(16)),
    "CHECKSUM": (lambda link: link.checksum(0x2000_0000, 16), bytes(4)),
    "RESET": (lambda link: link.reset(), b""),
}


class Lying(Answering):
    """Answers as it should, except to the requests called ``name``."""

    def __init__(self, name: str, payload: bytes) -> None:
        super().__init__()
        self._lies = {BY_NAME[name].opcode: payload}

    def answer(self, request: Frame) -> None:
        right = {BY_NAME[name].opcode: bytes(8) + body for name, (_, body) in CALLS.items()}
        payload = (right | self._lies)[request.opcode]
        self._out += encode_frame(Frame(request.opcode | REPLY_BIT, request.sequence, 7, payload))


def sizes(name: str) -> list[int]:
    """All sizes of a reply's body that are wrong, and a few beyond."""
    right = len(CALLS[name][1])
    wrong = {*range(right), *range(right + 1, right + 14)}
    if name == "OPEN":  # its image has up to 64 bytes
        wrong = {*range(right), right + 65, right + 5000}
    if name == "REGIONS":  # as many as fit: the rest is asked for again
        wrong = {*wrong, 5000 * REGION.size_bytes} - {REGION.size_bytes, 2 * REGION.size_bytes}
    return sorted(wrong)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("status", [Status.OK, Status.ADDRESS, Status.FAULT, Status.ACCEPTED])
def test_a_reply_of_a_wrong_size_is_one_sentence(name: str, status: Status) -> None:
    call, right = CALLS[name]
    outcome = OUTCOME.pack(status, 0, 0)
    lies = [outcome + (right + bytes(70_000))[:size] for size in sizes(name)]
    if name == "EXECUTE" and status == Status.FAULT:
        lies = [lie for lie in lies if len(lie) != 8 + FAULT.size_bytes]
    if status == Status.OK:
        lies += [outcome[:size] for size in range(8)]
    elif name == "EXECUTE" and status == Status.ACCEPTED:
        lies = [lie for lie in lies if len(lie) != 8]
    for lie in lies:
        link = MonitorLink(Lying(name, lie), Timeouts(boot_s=0.2, resend_s=0.05))
        with pytest.raises((DeviceError, LinkError)) as caught:
            call(link)
        assert not isinstance(caught.value, LinkTimeout), lie
        assert "\n" not in str(caught.value)


def test_all_requests_are_lied_to() -> None:
    assert CALLS.keys() == {name for name, message in BY_NAME.items() if message.request}


def test_regions_that_come_in_parts() -> None:
    link = MonitorLink(Lying("REGIONS", bytes(8) + RIGHT[: REGION.size_bytes]))
    assert len(link.regions()) == REGIONS


@pytest.mark.parametrize("record", [(0xFFFF_FFF0, 17, 7), (0, 16, 8)])
def test_a_region_that_none_can_be(record: tuple[int, int, int]) -> None:
    link = MonitorLink(Lying("REGIONS", bytes(8) + REGION.pack(*record) * REGIONS))
    with pytest.raises(DeviceError, match="which none can be"):
        link.regions()


def test_no_session_for_ever_says_so() -> None:
    lying = Lying("OPEN", OUTCOME.pack(Status.NO_SESSION, 0, 7))
    said = r"the device refused \d+ times with NO_SESSION within 0\.\d s: it restarts, or another"
    with pytest.raises(LinkTimeout, match=said):
        MonitorLink(lying, Timeouts(boot_s=0.1, resend_s=0.05)).hello()


def test_a_timeout_says_what_was_heard_instead() -> None:
    class Other(Answering):
        def answer(self, request: Frame) -> None:
            super().answer(dataclasses.replace(request, sequence=request.sequence + 9))

    with pytest.raises(LinkTimeout, match=r"bytes received: \d+ x HELLO reply of another session"):
        MonitorLink(Other(Frame(0, 0, 7, bytes(8))), Timeouts(boot_s=0.05)).hello()


# Through a debugger.


class LyingCore(Core):
    """A core whose replies lie in its memory."""

    def __init__(self, name: str, payload: bytes) -> None:
        super().__init__()
        self._lies = {BY_NAME[name].opcode: payload}
        self._opcode = 0

    def write_memory(self, address: int, data: bytes) -> None:
        if address > MAILBOX_AT:
            self._opcode = int.from_bytes(data[:4], "little")

    def within(self, _seconds: float) -> Any:
        return contextlib.nullcontext()

    def read_memory(self, address: int, size: int) -> bytes:
        right = {BY_NAME[name].opcode: bytes(8) + body for name, (_, body) in CALLS.items()}
        reply = (right | self._lies).get(self._opcode, b"")
        if address == MAILBOX_AT:
            values = (PROTOCOL_VERSION, 7, 0x100, 0x4000, self._opcode | 0x80, len(reply), 0, 0)
            return MAILBOX.pack(*values)
        return reply


@pytest.mark.parametrize("name", ["OPEN", "REGIONS", "EXECUTE", "CHECKSUM"])
def test_a_reply_of_a_wrong_size_in_memory(name: str) -> None:
    call, right = CALLS[name]
    for size in sizes(name):
        lie = (bytes(8) + right + bytes(70_000))[: 8 + size]
        link = DebugLink(LyingCore(name, lie), SYMBOLS)  # type: ignore[arg-type]
        with pytest.raises((DeviceError, LinkError)) as caught:
            call(link)
        assert "\n" not in str(caught.value)


# Of a server.

HELLO = Hello(3, "1.2", 7, 256, 256, 1000, "cycles", 0x2000_0000, 4096, 1, "utvm")
ROW = dataclasses.asdict(Region(0x2000_0000, 16, True, True, True))
#: A request, what answers it rightly, and fields that are wrong in themselves.
SERVED: dict[str, tuple[dict[str, Any], bytes, list[dict[str, Any]]]] = {
    "hello": (
        {"hello": dataclasses.asdict(HELLO)},
        b"",
        [
            {"hello": dataclasses.asdict(dataclasses.replace(HELLO, **change))}
            for change in (
                {"reply_bytes": -1},
                {"nonce": 1 << 70},
                {"ticks_per_second": 0},
                {"tick_unit": "parsecs"},
                {"image": "\x1b[31m"},
                {"request_bytes": 3},
            )
        ],
    ),
    "regions": ({"regions": [ROW]}, b"", [{"regions": []}, {"regions": [ROW] * 5000}]),
    "read": ({}, bytes(16), []),
    "write": ({}, b"", []),
    "execute": ({}, bytes(16), []),
    "checksum": ({"crc": 7}, b"", [{"crc": -1}, {"crc": 1 << 32}, {"crc": True}]),
    "reset": ({}, b"", []),
}


class LyingServer:
    """A session's transport: the right answers, except to one kind of request."""

    def __init__(self, op: str, fields: dict[str, Any], body: bytes) -> None:
        self._lies = {op: (fields, body)}
        self._reply = b""

    def send(self, data: bytes) -> None:
        request = decode(data).fields
        right = {op: (fields, body) for op, (fields, body, _) in SERVED.items()}
        fields, body = (right | self._lies)[request["op"]]
        self._reply = encode({"id": request["id"], **fields}, body)

    def receive(self, timeout_s: float) -> bytes:
        return self._reply

    def close(self) -> None:
        pass


@pytest.mark.parametrize("op", SERVED)
def test_an_answer_of_a_server_that_is_none(op: str) -> None:
    name = {"hello": "OPEN"}.get(op, op.upper())
    fields, body, wrong = SERVED[op]
    lies: list[tuple[dict[str, Any], bytes]] = [(one, body) for one in wrong]
    lies += [(fields, (body + bytes(99))[:size]) for size in range(40) if size != len(body)]
    lies += [({**fields, "more": 1}, body), *([({}, body)] if fields else [])]
    for lie in lies:
        exchange = Exchange("the double", str)
        exchange.open(LyingServer(op, *lie))
        link = RemoteLink(exchange, Speeds())
        with pytest.raises(LinkError) as caught:
            link.hello()
            CALLS[name][0](link)
        assert "\n" not in str(caught.value)


def test_a_request_that_was_cut_off_is_not_carried_out() -> None:
    class Service:
        def answer(self, data: bytes) -> bytes:
            pytest.fail("a part of a request was answered")

    request = encode({"op": "write", "id": 1, "address": 0x2000_0000}, bytes(100))
    for size in range(LENGTH.size + len(request)):
        stream = io.BytesIO((LENGTH.pack(len(request)) + request)[:size])
        serve(Service(), stream)  # type: ignore[arg-type]


# Of a debug server.


@pytest.mark.parametrize("answer", [b"00 11 22 33", b"0011223", b"001122", b"0011223344"])
def test_a_register_of_another_size(answer: bytes) -> None:
    client = client_of({b"pf": answer})
    with pytest.raises((DeviceError, LinkError), match="register pc"):
        client.read_register("pc")


def test_a_part_of_a_file_that_is_longer_than_was_asked_for() -> None:
    client = client_of({b"qXfer": b"m" + bytes(1000)})
    with pytest.raises(DeviceError, match="1000 bytes of 1000, more than was asked for"):
        client.read_object("features", "target.xml")


def client_of(answers: dict[bytes, bytes]) -> GdbClient:
    """A client whose server answers packets that begin so."""

    class Server:
        out = b""

        def write(self, data: bytes, timeout_s: float) -> None:
            for begin, answer in answers.items():
                if data[1:].startswith(begin):
                    self.out += b"+" + encode_packet(answer)

        def read(self, max_bytes: int, timeout_s: float) -> bytes:
            out, self.out = self.out, b""
            return out

        def close(self) -> None:
            pass

    return GdbClient(Server(), ARM_M)
