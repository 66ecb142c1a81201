"""A line that changes or loses one byte of a hundred: slower, and never wrong."""

from __future__ import annotations

import time

import pytest

from tests.link.fakes import HostDevice, NoisyStream
from utvm_deploy.base.errors import LinkTimeout
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.line_quality import LEAST_PART_BYTES, LineQuality
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.waits import Timeouts, Waits

DATA = bytes(range(250)) * 2


@pytest.mark.parametrize("noise", [{"corrupted": 0.01}, {"lost": 0.01}])
def test_calls_over_a_line_with_noise(
    noise: dict[str, float], device: HostDevice, symbols: dict[str, int]
) -> None:
    stream = NoisyStream(device.stream, 1, **noise)
    link = MonitorLink(stream)
    base = link.hello().workspace_address
    for n in range(3):
        data = DATA[n:] + DATA[:n]
        link.write(base, bytes(4) + data)
        count = Task(symbols["test_count"], (base,))
        assert len(link.execute([count] * 12, 60.0)) == 12
        assert link.read(base, 4 + len(data)) == (12).to_bytes(4, "little") + data
    assert stream.again > 0


def test_a_clean_line_has_the_frames_of_before(device: HostDevice, symbols: dict[str, int]) -> None:
    """Long parts, whole batches, and nothing twice."""
    stream = NoisyStream(device.stream, 1)
    link = MonitorLink(stream)
    base = link.hello().workspace_address
    link.write(base, DATA)
    link.execute([Task(symbols["test_count"], (base,))] * 12, 60.0)
    assert link.read(base, 500)[4:] == DATA[4:]
    # HELLO, OPEN, two parts each way, one batch
    assert (stream.frames - stream.again, stream.again) == (7, 0)


def test_parts_are_halved_after_losses_and_grow_again() -> None:
    line = LineQuality(Timeouts())
    line.largest_bytes = 256
    assert line.part_bytes(250) == 250
    for shorter in (128, 64, LEAST_PART_BYTES, LEAST_PART_BYTES):
        line.note_loss()
        assert line.part_bytes(250) == shorter
    for longer in (64, 128, 250):
        while line.part_bytes(250) < longer:
            line.note_good(90)
        assert line.part_bytes(250) == longer


def test_requests_follow_sooner_on_a_bad_line_only() -> None:
    usual = Timeouts()
    line = LineQuality(usual)
    line.note_answer(50, 0.01)
    assert line.times(60, 30).resend_s == usual.resend_s
    line.note_loss()
    assert 0.02 <= line.times(60, 30).resend_s < 0.1
    # A slow line is given what it needs: 9600 baud, and a computer that is busy.
    slow = LineQuality(usual)
    slow.note_answer(60, 0.09)
    slow.note_loss()
    assert slow.times(60, 30).resend_s > 0.25
    # Nothing waits longer than it would on a line without losses.
    stuck = LineQuality(usual)
    stuck.note_answer(50, 9.0)
    stuck.note_loss()
    assert stuck.times(60, 30).resend_s <= usual.resend_s + 60 * usual.byte_s


def test_a_result_that_was_lost_is_asked_for_until_it_comes() -> None:
    waits = Waits(Timeouts(), 60.0, 30)
    now_s = waits.began_s
    waits.note_sent(now_s)
    waits.note_accepted()
    assert waits.until_next_s(now_s) > 50
    waits.note_loss(now_s)
    waits.note_sent(now_s + 0.1)
    # A byte that says nothing must not make it wait for the deadline.
    waits.note_bytes(now_s + 0.2, 1, is_within_frame=False)
    assert waits.until_next_s(now_s + 0.2) < 2.0


def test_a_device_that_boots_is_not_flooded(device: HostDevice) -> None:
    """HELLO has the usual pauses, whatever was learnt of the line before."""
    stream = NoisyStream(device.stream, 1)
    link = MonitorLink(stream, Timeouts(resend_s=0.2, byte_s=0.0))
    link.hello()
    link._line.note_answer(50, 0.001)
    link._line.note_loss()
    stream.lost, before = 1.0, stream.frames
    with pytest.raises(LinkTimeout):
        link._open(time.monotonic() + 0.7)
    assert stream.frames - before <= 4


def test_an_answer_after_two_copies_says_no_time(device: HostDevice) -> None:
    """It may be the answer to the first copy."""

    class FirstLost(NoisyStream):
        def write(self, data: bytes, timeout_s: float) -> None:
            self.lost = 1.0 if data != self._latest else 0.0
            super().write(data, timeout_s)
            self.lost = 0.0

    stream = NoisyStream(device.stream, 1)
    link = MonitorLink(stream, Timeouts(resend_s=0.05, byte_s=0.0))
    base = link.hello().workspace_address
    known = list(link._line._took_s)
    link._stream = FirstLost(device.stream, 1)
    link.read(base, 4)
    assert list(link._line._took_s) == known
