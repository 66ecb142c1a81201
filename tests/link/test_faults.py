"""The link over a bad line: each fault at each byte of a short exchange, in both directions.

Whatever happens, a batch runs once, a read brings the right bytes, and every wait ends.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import pytest

from tests.link.fakes import (
    DIRECTIONS,
    PASSING,
    PATIENCE_S,
    Direction,
    Fault,
    FlakyStream,
    HostDevice,
    Kind,
)
from utvm_deploy.base.errors import DeviceReset, LinkClosed, LinkTimeout
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.frame import Frame, encode_frame
from utvm_deploy.device.link.messages import REPLY_BIT
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts

# So short that a request goes out twice now and then although nothing was lost: no harm either.
QUICK = Timeouts(reply_s=5.0, byte_s=0, resend_s=0.006, resend_max_s=0.05, boot_s=5.0)
DATA = b"\x00\x01\xff\x00\x00utvm"


def short_exchange(
    link: MonitorLink, symbols: dict[str, int], timeout_s: float = QUICK.reply_s
) -> None:
    """One of each; fails if anything is lost, or done twice."""
    base = link.hello().workspace_address
    link.write(base, bytes(4) + DATA)
    (ticks,) = link.execute([Task(symbols["test_count"], (base,))], timeout_s)
    assert len(ticks) == 1
    expected = (1).to_bytes(4, "little") + DATA
    assert link.read(base, len(expected)) == expected
    assert link.checksum(base, len(expected)) == zlib.crc32(expected)


@pytest.fixture(scope="module")
def exchange_bytes(host_program, symbols) -> dict[Direction, int]:
    """How many bytes pass in each direction when nothing goes wrong; the boot frame included."""
    device = HostDevice(host_program)
    stream = FlakyStream(device.stream)
    try:
        short_exchange(MonitorLink(stream, Timeouts()), symbols)
    finally:
        device.close()
    return {direction: stream.bytes_passed(direction) for direction in DIRECTIONS}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", PASSING)
def test_faults_that_pass(
    kind: Kind,
    direction: Direction,
    device: HostDevice,
    symbols: dict[str, int],
    exchange_bytes: dict[Direction, int],
) -> None:
    for at in range(exchange_bytes[direction]):
        # A second mask turns bytes to zero now and then: a frame cut in two.
        fault = Fault(kind, direction, at, length=1 + at % 3, mask=0x55 if at % 2 else 0x01)
        stream = FlakyStream(device.stream, (fault,))
        try:
            short_exchange(MonitorLink(stream, QUICK), symbols)
        except Exception as error:
            raise AssertionError(f"after {fault}") from error


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_whole_frame_lost(
    direction: Direction,
    device: HostDevice,
    symbols: dict[str, int],
    exchange_bytes: dict[Direction, int],
) -> None:
    for at in range(0, exchange_bytes[direction], 5):
        fault = Fault("drop", direction, at, length=40)
        # a lost result is asked for at the deadline only
        short_exchange(MonitorLink(FlakyStream(device.stream, (fault,)), QUICK), symbols, 0.2)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_many_faults_at_once(
    direction: Direction, device: HostDevice, symbols: dict[str, int]
) -> None:
    kinds: tuple[Kind, ...] = ("corrupt", "drop", "garbage", "duplicate")
    faults = tuple(Fault(kinds[n % 4], direction, 7 + 131 * n) for n in range(40))
    link = MonitorLink(FlakyStream(device.stream, faults), QUICK)
    for _ in range(10):
        short_exchange(link, symbols)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_wedged_stream_ends_in_a_timeout(
    direction: Direction,
    device: HostDevice,
    symbols: dict[str, int],
    exchange_bytes: dict[Direction, int],
) -> None:
    impatient = Timeouts(
        reply_s=0.02, last_s=0.02, byte_s=0, resend_s=0.006, resend_max_s=0.05, boot_s=0.02
    )
    for at in range(exchange_bytes[direction]):
        stream = FlakyStream(device.stream, (Fault("stall", direction, at),))
        link = MonitorLink(stream, impatient)
        began_s = time.monotonic()
        with pytest.raises(LinkTimeout, match="did not answer within"):
            short_exchange_within(link, symbols, 0.02)
        assert time.monotonic() - began_s < PATIENCE_S
    # and the device is none the worse for it
    short_exchange(MonitorLink(device.stream, QUICK), symbols)


def short_exchange_within(link: MonitorLink, symbols: dict[str, int], timeout_s: float) -> None:
    base = link.hello().workspace_address
    while True:
        link.write(base, bytes(4) + DATA)
        link.execute([Task(symbols["test_count"], (base,))], timeout_s)
        link.read(base, 4)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_reset_is_noticed(
    direction: Direction,
    device: HostDevice,
    symbols: dict[str, int],
    exchange_bytes: dict[Direction, int],
) -> None:
    stream = FlakyStream(device.stream)
    MonitorLink(stream).hello()
    after_hello = exchange_bytes[direction] - stream.bytes_passed(direction)
    for at in range(after_hello):
        device.restart()
        flaky = FlakyStream(device.stream, restart=device.restart)
        link = MonitorLink(flaky, QUICK)
        before = link.hello()
        # Counted from here: a busy machine may have seen the greeting sent twice.
        flaky.add_fault(Fault("reset", direction, at))
        with pytest.raises(DeviceReset):
            for _ in range(2):
                base = before.workspace_address
                link.write(base, bytes(4) + DATA)
                link.execute([Task(symbols["test_count"], (base,))], QUICK.reply_s)
                link.read(base, 4)
        # what comes next begins anew
        short_exchange(link, symbols)
        assert link.hello().nonce != before.nonce


def test_a_reset_during_a_batch_is_noticed_at_once(
    device: HostDevice, symbols: dict[str, int]
) -> None:
    """The frame that a device sends on boot ends the wait long before the batch's deadline."""
    link = MonitorLink(device.stream)
    first = link.hello()
    began_s = time.monotonic()
    with pytest.raises(DeviceReset, match="restarted"):
        link.execute([Task(symbols["test_restart"])], 60.0)
    assert time.monotonic() - began_s < PATIENCE_S
    assert link.read(first.workspace_address, 4) == bytes(4)
    assert link.hello().nonce != first.nonce


def test_old_boot_frames_are_left_alone(device: HostDevice) -> None:
    """The link asks again, and the device has its say."""
    stream = FlakyStream(device.stream)
    link = MonitorLink(stream)
    base = link.hello().workspace_address
    link.write(base, b"utvm")
    for _ in range(20):
        stream.inject(encode_frame(Frame(REPLY_BIT, 0, 0, bytes(8))))
        assert link.read(base, 4) == b"utvm"


def test_another_host_takes_over(device: HostDevice) -> None:
    first, second = MonitorLink(device.stream), MonitorLink(device.stream)
    base = first.hello().workspace_address
    second.write(base, b"mine")
    with pytest.raises(DeviceReset, match="another program began a session"):
        first.write(base, b"lost")
    # That is not a reset: what the second one wrote is there.
    assert first.read(base, 4) == b"mine"


def test_a_lost_result_is_asked_for_at_the_deadline(
    device: HostDevice, symbols: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    hello = MonitorLink(device.stream).hello()
    base = hello.workspace_address
    # after HELLO's and WRITE's replies and ACCEPTED: the result, and only it
    recording = FlakyStream(device.stream)
    link = MonitorLink(recording)
    link.write(base, bytes(4))
    before = recording.bytes_passed("to host")
    link.execute([Task(symbols["test_count"], (base,))], 5.0)
    both = recording.bytes_passed("to host") - before
    assert not caplog.records
    accepted = both - 8 - 25
    faults = (Fault("drop", "to host", before + accepted + 1, length=60),)
    link = MonitorLink(FlakyStream(device.stream, faults))
    link.write(base, bytes(4))
    link.execute([Task(symbols["test_count"], (base,))], 0.3)
    assert link.read(base, 4) == (1).to_bytes(4, "little")
    assert "so their times may be too long" in caplog.text


def test_a_batch_longer_than_its_deadline(device: HostDevice, symbols: dict[str, int]) -> None:
    link = MonitorLink(device.stream, Timeouts(last_s=0.05, byte_s=0, resend_s=0.02))
    with pytest.raises(LinkTimeout):
        link.execute([Task(symbols["test_sleep"], (400,), deadline_s=5.0)], 0.1)
    # The device is deaf until it is done; then the link works on.
    assert link.checksum(link.hello().workspace_address, 16) == zlib.crc32(bytes(16))


def test_a_device_that_dies(device: HostDevice, symbols: dict[str, int]) -> None:
    link = MonitorLink(device.stream)
    with pytest.raises(LinkClosed, match="went away"):
        link.execute([Task(symbols["test_die"], (3,))], 5.0)
    assert device.process.wait(5) == 3
    with pytest.raises(LinkClosed):
        link.hello()


def test_a_closed_link_says_so(device: HostDevice) -> None:
    link = MonitorLink(device.stream)
    link.close()
    link.close()
    with pytest.raises(LinkClosed, match="closed; connect again"):
        link.hello()


def test_a_second_host_on_the_same_device(
    start_device: Callable[[], HostDevice], symbols: dict[str, int]
) -> None:
    """A host that died leaves half a request and an unread reply behind."""
    device = start_device()
    first = MonitorLink(device.stream)
    first.hello()
    device.stream.write(b"\x00\x05\x01\x02", 1.0)
    short_exchange(MonitorLink(device.stream, QUICK), symbols)
    short_exchange(MonitorLink(device.stream, QUICK), symbols)
