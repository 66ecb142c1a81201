"""The link over a good line: the primitives, what they refuse, and what is logged."""

from __future__ import annotations

import logging
import random
import zlib
from pathlib import Path

import pytest

from tests.link.conftest import build_host
from tests.link.fakes import HostDevice
from utvm_deploy.base.errors import DeviceError, DeviceReset, LinkTimeout
from utvm_deploy.device.link.base import Link, Region, Task
from utvm_deploy.device.link.frame import Frame, FrameDecoder, encode_frame
from utvm_deploy.device.link.messages import BY_NAME, OUTCOME, PROTOCOL_VERSION, REPLY_BIT, Status
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts


def test_hello(link: MonitorLink, symbols: dict[str, int]) -> None:
    hello = link.hello()
    assert hello.protocol_version == PROTOCOL_VERSION
    assert hello.runtime_version == "2.0"
    assert hello.request_bytes == 256
    assert hello.reply_bytes >= 256
    assert (hello.tick_unit, hello.ticks_per_second) == ("nanoseconds", 1_000_000_000)
    assert hello.workspace_address == symbols["utvm_workspace"]
    assert hello.workspace_size == 262144
    assert symbols["utvm_workspace_end"] - symbols["utvm_workspace"] == hello.workspace_size
    assert hello.image == "tests/link"
    assert link.hello() == hello


def test_regions(link: MonitorLink, symbols: dict[str, int]) -> None:
    workspace, text = link.regions()
    assert workspace == Region(symbols["utvm_workspace"], 262144, True, True, True)
    assert (text.readable, text.writable, text.executable) == (True, False, True)
    assert text.address <= symbols["test_count"] < text.address + text.size


@pytest.mark.parametrize("size", [0, 1, 247, 248, 251, 252, 253, 254, 255, 256, 257, 5000, 200_000])
def test_write_read_checksum(link: MonitorLink, size: int) -> None:
    data = random.Random(size).randbytes(size)
    base = link.hello().workspace_address
    link.write(base, b"\xee" * (size + 2))
    link.write(base + 1, data)
    assert link.read(base, size + 2) == b"\xee" + data + b"\xee"
    assert link.checksum(base + 1, size) == zlib.crc32(data)


def test_a_task_gets_its_arguments(link: MonitorLink, symbols: dict[str, int]) -> None:
    base = link.hello().workspace_address
    words = (1, -1, 2**31 - 1, -(2**31), 5, -6, 7, -8, 9, -10, 11)
    link.execute([Task(symbols["test_arguments"], (base, *words))], 5.0)
    read = link.read(base, 44)
    assert [int.from_bytes(read[4 * n : 4 * n + 4], "little", signed=True) for n in range(11)] == [
        *words
    ]


def test_ticks_are_times(link: MonitorLink, symbols: dict[str, int]) -> None:
    sleep, count = symbols["test_sleep"], symbols["test_count"]
    base = link.hello().workspace_address
    ticks = link.execute(
        [Task(count, (base,)), Task(sleep, (20,), repeat=2), Task(count, (base,), 0)], 5.0
    )
    assert [len(of_task) for of_task in ticks] == [1, 2, 0]
    assert ticks[0][0] < 20_000_000
    assert all(20_000_000 <= of_call < 2_000_000_000 for of_call in ticks[1])


def test_long_batches_are_split(link: MonitorLink, symbols: dict[str, int]) -> None:
    """A reply of 256 bytes holds 31 times, a request 21 tasks with one argument."""
    base = link.hello().workspace_address
    link.write(base, bytes(8))
    tasks = [Task(symbols["test_count"], (base + 4 * (n % 2),), repeat=n) for n in range(100)]
    ticks = link.execute(tasks, 10.0)
    assert [len(of_task) for of_task in ticks] == list(range(100))
    even, odd = sum(range(0, 100, 2)), sum(range(1, 100, 2))
    assert link.read(base, 8) == even.to_bytes(4, "little") + odd.to_bytes(4, "little")
    assert link.execute([], 1.0) == []


def test_refusals(link: MonitorLink, symbols: dict[str, int]) -> None:
    base, size = symbols["utvm_workspace"], 262144
    count = symbols["test_count"]
    for action, detail in (
        (lambda: link.read(0, 1), 0),
        (lambda: link.read(base + size, 1), base + size),
        (lambda: link.read(base + size - 3, 4), base + size - 3),
        (lambda: link.write(count, b"\0"), count),
        (lambda: link.checksum(0xFFFFFFFF, 1), 0xFFFFFFFF),
        (lambda: link.execute([Task(base + size)], 1.0), base + size),
    ):
        with pytest.raises(DeviceError, match="its regions do not allow that at 0x") as caught:
            action()
        assert caught.value.status == Status.ADDRESS
        assert caught.value.detail == detail
    # The last byte is allowed.
    assert len(link.read(base + size - 4, 4)) == 4


def test_a_refused_batch_names_the_task_and_runs_nothing(
    link: MonitorLink, symbols: dict[str, int]
) -> None:
    base = link.hello().workspace_address
    link.write(base, bytes(4))
    good = Task(symbols["test_count"], (base,))
    with pytest.raises(DeviceError) as caught:
        link.execute([good, good, Task(base + 262144), good], 5.0)
    assert caught.value.index == 2
    assert link.read(base, 4) == bytes(4)


@pytest.mark.parametrize(
    "task, words",
    [
        (Task(16, tuple(range(13))), "13 arguments"),
        (Task(16, (1 << 32,)), "not a word of 32 bits"),
        (Task(-(1 << 31) - 1), "not a word of 32 bits"),
        (Task(16, repeat=-1), "repeats -1 times"),
    ],
)
def test_tasks_that_cannot_be_said(link: MonitorLink, task: Task, words: str) -> None:
    with pytest.raises(DeviceError, match=words) as caught:
        link.execute([Task(16), task], 1.0)
    assert caught.value.index == 1


def test_reset_clears_the_memory(link: MonitorLink) -> None:
    before = link.hello()
    link.write(before.workspace_address, b"utvm")
    link.reset()
    after = link.hello()
    assert after.nonce != before.nonce
    assert link.read(after.workspace_address, 4) == bytes(4)


def test_a_session_of_another_boot_is_refused(device: HostDevice) -> None:
    """The boot frame may be lost; the first reply tells as well."""
    link = MonitorLink(device.stream)
    base = link.hello().workspace_address
    other = device.restart()
    while not other.read(4096, 1.0):
        pass
    link._stream = other
    with pytest.raises(DeviceReset):
        link.write(base, b"too late")
    assert link.read(base, 8) == bytes(8)


def test_the_process_ends_with_its_input(device: HostDevice) -> None:
    MonitorLink(device.stream).close()
    assert device.process.wait(5) == 0


def test_the_process_ends_although_its_output_is_full(host_program: Path) -> None:
    device = HostDevice(host_program)
    try:
        link = MonitorLink(device.stream)
        hello = link.hello()
        read = Frame(2, 1, link._session, hello.workspace_address.to_bytes(4, "little") + bytes(4))
        with pytest.raises(LinkTimeout, match="took"):
            # Nobody reads the refusals: at some time its output, then its input is full.
            for n in range(100_000):
                request = Frame(99, link._sequence + 1 + n, link._session, read.payload)
                device.stream.write(encode_frame(request), 0.2)
        device.stream.close()
        assert device.process.wait(5) == 0
    finally:
        device.close()


@pytest.mark.tools
def test_payloads_of_the_default_size(tmp_path: Path) -> None:
    device = HostDevice(build_host(tmp_path / "host"))
    try:
        link = MonitorLink(device.stream)
        hello = link.hello()
        assert hello.request_bytes == 32768
        data = random.Random(0).randbytes(400_000)
        link.write(hello.workspace_address, data)
        assert link.read(hello.workspace_address, len(data)) == data
    finally:
        device.close()


def test_the_wire_is_traced(link: MonitorLink, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "utvm_deploy.device.link"):
        link.write(link.hello().workspace_address, b"abcd" * 20)
    lines = [record.getMessage() for record in caplog.records]
    sent = next(line for line in lines if "-> WRITE #" in line)
    assert "61626364 61626364" in sent and sent.endswith("...")
    assert any("<- HELLO reply #" in line for line in lines)
    assert all(line.strip().startswith("+") and " ms " in line for line in lines)


#: Of an OPEN: payloads of 256 bytes, a timer of 1 kHz.
FACTS = (
    bytes(4)
    + (256).to_bytes(2, "little") * 2
    + (1000).to_bytes(4, "little")
    + bytes(12)
    + (7).to_bytes(4, "little")  # the nonce of its boot
)


def opening(region_count: int = 0) -> tuple[Frame, ...]:
    """What a device that ``FACTS`` are of says to begin a session."""
    facts = bytearray(FACTS)
    facts[14:16] = region_count.to_bytes(2, "little")
    return (Frame(0, 0, 7, bytes(8) + bytes(facts)),)


class Answering:
    """A stream whose other end is a function from request to reply frames."""

    def __init__(self, *replies: Frame) -> None:
        self._replies = replies
        self._decoder = FrameDecoder()
        self._out = b""

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        out, self._out = self._out[:max_bytes], self._out[max_bytes:]
        return out

    def write(self, data: bytes, timeout_s: float) -> None:
        for request in self._decoder.feed(data):
            assert isinstance(request, Frame)
            self.answer(request)

    def answer(self, request: Frame) -> None:
        for reply in self._replies:
            # HELLO and RESET are answered by an outcome alone.
            is_bare = request.opcode in (1, 7) and reply.payload[:2] == bytes(2)
            self._out += encode_frame(
                Frame(
                    reply.opcode or request.opcode | REPLY_BIT,
                    request.sequence,
                    reply.session,
                    reply.payload[: OUTCOME.size_bytes] if is_bare else reply.payload,
                    reply.version,
                )
            )

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "reply, words",
    [
        (
            Frame(0, 0, 7, OUTCOME.pack(Status.VERSION, 0, 3), 3),
            f"speaks protocol version 3, this utvm_deploy {PROTOCOL_VERSION}: build the image",
        ),
        (
            Frame(0, 0, 7, OUTCOME.pack(Status.VERSION, 0, 9), 9),
            f"version 9, this utvm_deploy {PROTOCOL_VERSION}: update utvm_deploy, or",
        ),
        (Frame(0, 0, 7, OUTCOME.pack(Status.OPCODE, 0, 1)), "does not know opcode 1"),
        (Frame(0, 0, 7, OUTCOME.pack(77, 0, 1)), "unknown status 77"),
        (Frame(0, 0, 7, b"short"), "to say hello, the device sent a reply of 5 bytes"),
        (Frame(0, 0, 7, OUTCOME.pack(0, 0, 0)), "a reply of 8 bytes, and it has at least 36"),
        (Frame(0, 0, 7, OUTCOME.pack(0, 0, 0) + bytes(28)), "room for fewer than 128 bytes"),
        (Frame(0, 0, 7, OUTCOME.pack(0, 0, 0) + b"\xff" * 28), "hello makes no sense"),
        (Frame(0, 0, 7, OUTCOME.pack(0, 0, 0) + FACTS[:8] + bytes(20)), "timer stands still"),
    ],
)
def test_devices_that_do_not_fit(reply: Frame, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        MonitorLink(Answering(reply)).hello()


@pytest.mark.parametrize(
    "reply",
    [Frame(REPLY_BIT | 5, 0, 7, bytes(32)), Frame(1, 0, 7, bytes(32))],
)
def test_what_is_no_reply_is_passed_over(reply: Frame) -> None:
    quick = Timeouts(boot_s=0.02, resend_s=0.005)
    with pytest.raises(LinkTimeout, match="baud rate"):
        MonitorLink(Answering(reply), quick).hello()


class Straying(Answering):
    """A device whose line gives replies to other requests and of other sessions first."""

    def answer(self, request: Frame) -> None:
        if request.opcode == BY_NAME["READ"].opcode:
            opcode, right = request.opcode | REPLY_BIT, OUTCOME.pack(0, 0, 0) + b"right"
            for sequence, session, payload in (
                (request.sequence - 1, request.session, OUTCOME.pack(0, 0, 0) + b"older"),
                (request.sequence + 1, request.session, OUTCOME.pack(0, 0, 0) + b"later"),
                (request.sequence, request.session + 1, OUTCOME.pack(0, 0, 0) + b"other"),
                (request.sequence, request.session, right),
            ):
                self._out += encode_frame(Frame(opcode, sequence, session, payload))
        else:
            super().answer(request)


def test_only_the_reply_to_this_request_of_this_session_counts() -> None:
    link = MonitorLink(Straying(*opening()))
    assert link.read(0x10, 5) == b"right"


def test_a_checksum_of_no_bytes_is_no_checksum() -> None:
    link = MonitorLink(Answering(Frame(0, 0, 7, bytes(8) + FACTS)))
    said = r"to checksum 9 bytes at 0x00000010, the device sent a reply of 36 bytes, and it has 12"
    with pytest.raises(DeviceError, match=said):
        link.checksum(0x10, 9)


def test_a_device_that_does_not_restart() -> None:
    stream = Answering(Frame(0, 0, 7, bytes(8) + FACTS))
    with pytest.raises(LinkTimeout, match="promised to restart"):
        MonitorLink(stream, Timeouts(boot_s=0.05, resend_s=0.01)).reset()


def test_a_monitor_link_is_a_link(link: MonitorLink) -> None:
    as_protocol: Link = link
    assert as_protocol.hello().nonce


@pytest.mark.slow
def test_a_hello_before_the_boot_is_said_again_at_once() -> None:
    """What was sent to a board that was still restarting is lost; its boot frame says so."""

    class Booting(Answering):
        booted = False

        def write(self, data: bytes, timeout_s: float) -> None:
            if self.booted:
                super().write(data, timeout_s)
            else:
                self.booted = True
                self._out += encode_frame(Frame(REPLY_BIT, 0, 7, bytes(8)))

    # Resent only after the deadline, so that nothing else brings the answer.
    timeouts = Timeouts(resend_s=20.0, resend_max_s=20.0)
    link = MonitorLink(Booting(Frame(0, 0, 7, bytes(8) + FACTS)), timeouts)
    assert link.hello().nonce == 7
