"""The clock of one exchange: when to send, when to send again and when to give up. No I/O."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Every wait of a monitor link, in seconds."""

    # One exchange, resends included, on top of what its bytes and its work take.
    reply_s: float = 5.0
    # To a list of tasks that is still silent at its deadline, for one more answer.
    last_s: float = 1.5
    # A request is sent again after so much silence; twice as long after each time,
    resend_s: float = 0.5
    # but never longer than this.
    resend_max_s: float = 2.0
    # For each byte of the request on top of that: long ones are under way for long.
    byte_s: float = 0.0005
    # From a board's reset, or from opening its port, to its first reply: bootloaders wait.
    boot_s: float = 10.0


class Waits:
    """When to send, when to send again and when to give up: the clock of one exchange."""

    def __init__(self, timeouts: Timeouts, timeout_s: float, request_bytes: int) -> None:
        self._timeouts = timeouts
        self._request_bytes = request_bytes
        self._under_way_s = request_bytes * timeouts.byte_s
        self.began_s = time.monotonic()
        self.sent = 0
        self.received_bytes = 0
        self._deadline_s = self.began_s + timeout_s
        self._due_s = self.began_s
        self.sent_s = -math.inf
        self._pause_s = timeouts.resend_s
        self._is_accepted = False
        #: Whether tasks in progress were asked for their result, which disturbs their timing.
        self.asks_for_result = False
        self._asked_at_end = False
        self._is_within_frame = False

    def hurry(self, timeouts: Timeouts) -> None:
        """Something was lost: from here on wait by these times. The deadline stays."""
        self._timeouts = timeouts
        self._pause_s = min(self._pause_s, timeouts.resend_s)
        self._under_way_s = min(self._under_way_s, timeouts.byte_s * self._request_bytes)

    def is_over(self, now_s: float) -> bool:
        """Whether to give up. A list in progress gets one more question at its deadline."""
        if now_s < self._deadline_s:
            return False
        if not self._is_accepted or self._asked_at_end:
            return True
        self._asked_at_end = True
        self._due_s = now_s
        self._deadline_s = now_s + self._timeouts.last_s
        return False

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def until_over_s(self, now_s: float) -> float:
        return max(self._deadline_s - now_s, 0)

    def until_next_s(self, now_s: float) -> float:
        return max(min(self._deadline_s, self._due_s) - now_s, 0)

    def note_sent(self, now_s: float) -> None:
        self.sent += 1
        self.sent_s = now_s
        # A result that may have been lost was asked for, and so may be this request.
        self.asks_for_result = self._is_accepted
        self._due_s = now_s + self._pause_s + self._under_way_s
        self._pause_s = min(2 * self._pause_s, self._timeouts.resend_max_s)

    def note_bytes(self, now_s: float, count: int, is_within_frame: bool) -> None:
        """The device is talking: let it end, but do not wait for a frame that lost its end."""
        self.received_bytes += count
        self._is_within_frame = is_within_frame
        silence_over_s = now_s + self._timeouts.resend_s
        if self._is_accepted:
            # A list in progress is left alone: bytes that arrive would spoil its timing.
            if is_within_frame:
                self._due_s = silence_over_s
            elif not self.asks_for_result:
                self._due_s = math.inf
        elif is_within_frame:
            # Noise without an end must not keep a request from being sent again.
            longest_s = self._under_way_s + self._timeouts.resend_max_s
            self._due_s = min(silence_over_s, self.sent_s + longest_s)

    def note_accepted(self) -> None:
        self._is_accepted = True
        if not self._is_within_frame:
            self._due_s = math.inf

    def note_late(self, now_s: float) -> None:
        """A second reply to the request before: the device is behind, so more copies would not
        help.

        It postpones sending again, but not forever; the deadline stays where it is.
        """
        put_off_s = now_s + self._timeouts.resend_s + self._under_way_s
        longest_s = self.sent_s + self._timeouts.resend_max_s + self._under_way_s
        self._due_s = max(self._due_s, min(put_off_s, longest_s))

    def note_loss(self, now_s: float) -> None:
        """Something was lost, perhaps the reply: ask at once, unless more is coming already."""
        if not self._is_within_frame:
            calm_s = self.sent_s + self._timeouts.resend_s / 8
            self._due_s = min(self._due_s, max(now_s, calm_s))
