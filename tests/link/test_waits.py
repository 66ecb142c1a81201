"""The clock of one exchange; its times are numbers here, so nothing waits."""

from __future__ import annotations

from utvm_deploy.device.link.waits import Timeouts, Waits

TIMES = Timeouts(resend_s=0.5, resend_max_s=2.0, byte_s=0.001)


def due_after(waits: Waits, now_s: float) -> float:
    """Seconds from ``now_s`` until the request is sent again."""
    return round(waits.until_next_s(now_s), 6)


def test_a_long_request_is_sent_again_later_than_a_short_one() -> None:
    for request_bytes, longer_s in ((0, 0.0), (2000, 2.0)):
        waits = Waits(TIMES, 60.0, request_bytes)
        now_s = waits.began_s
        assert waits.is_due(now_s)
        for pause_s in (0.5, 1.0, 2.0, 2.0):
            waits.note_sent(now_s)
            assert due_after(waits, now_s) == pause_s + longer_s
            now_s += pause_s + longer_s
            assert waits.is_due(now_s + 1e-6)


def test_a_reply_to_the_request_before_puts_sending_again_off() -> None:
    waits = Waits(TIMES, 60.0, 1000)
    waits.note_sent(waits.began_s)
    late_s = waits.began_s + 1.4
    waits.note_late(late_s)
    assert due_after(waits, late_s) == 1.5
    # Not for ever, though: a device may say it again and again.
    waits.note_late(waits.began_s + 2.9)
    assert due_after(waits, waits.began_s + 2.9) == 0.1
    # It never makes the link send sooner.
    for _ in range(3):
        waits.note_sent(late_s)
    waits.note_late(late_s)
    assert due_after(waits, late_s) == 3.0


def test_nothing_moves_the_deadline() -> None:
    waits = Waits(TIMES, TIMES.reply_s, 0)
    waits.note_sent(waits.began_s)
    for tenth in range(1, 10):
        now_s = waits.began_s + tenth / 10 * TIMES.reply_s
        waits.note_late(now_s)
        waits.note_bytes(now_s, 1, is_within_frame=True)
        waits.note_loss(now_s)
        assert not waits.is_over(now_s)
    assert waits.is_over(waits.began_s + TIMES.reply_s + 1e-6)
