"""What a link knows of its line: how fast it answers, and how much gets through at once. No I/O.

A line that loses one byte of a hundred lets a frame of 60 bytes pass half of the time, and one of
500 bytes never. So after each loss the parts of a copy are half as long, and twice as long again
after enough bytes without a loss. While parts are short, a request is also sent again sooner: by
the time that requests took, and not by what the slowest line needs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from utvm_deploy.device.link.base import Hello
from utvm_deploy.device.link.task_lists import whole_room
from utvm_deploy.device.link.waits import Timeouts

#: No part of a copy is made shorter. Its frame has some 30 bytes more.
LEAST_PART_BYTES = 32
#: The assumed longest payload until the device gives it.
_UNKNOWN_BYTES = 2048
#: Parts become longer after the bytes of this many, frames included, without a loss.
_GOOD_PARTS = 8
_FRAMES_BYTES = 55
#: Answers whose times are kept.
_KEPT_TIMES = 8
#: A request is sent again after this number of times what an answer takes, but not sooner than
#: PAUSE_S: a busy computer. After more losses, it is sent again every PAUSE_MAX_S at least.
_PATIENCE = 3.0
_PAUSE_S = 0.02
_PAUSE_MAX_S = 0.25


class LineQuality:
    """Counts of one link. ``timeouts`` are those of a line without losses."""

    def __init__(self, timeouts: Timeouts) -> None:
        #: The longest payload that the device takes or sends.
        self.largest_bytes = _UNKNOWN_BYTES
        self._timeouts = timeouts
        self._limit: int | None = None  # None: no loss that still counts
        self._good_bytes = 0
        self._took_s: deque[float] = deque(maxlen=_KEPT_TIMES)
        # The least time for each byte so far; small frames make it too large, never too small.
        self._byte_s = timeouts.byte_s

    def part_bytes(self, room: int) -> int:
        """How many of up to ``room`` bytes to move at once."""
        return room if self._limit is None else min(room, self._limit)

    def list_room(self, hello: Hello) -> tuple[int, int]:
        """Bytes for the tasks of a list, and for their ticks.

        One loss splits no list: it may have been a busy computer, and ticks may depend on
        earlier runs of the same list.
        """
        room = whole_room(hello)
        if self._limit is None or 4 * self._limit > self.largest_bytes:
            return room
        return min(room[0], self._limit), min(room[1], self._limit)

    def times(self, moved_bytes: int, request_bytes: int) -> Timeouts:
        """The waits of an exchange of ``moved_bytes``, there and back."""
        if not self._took_s:
            return self._timeouts
        usual = self._timeouts
        answer_s = _PATIENCE * (max(self._took_s) + self._byte_s * moved_bytes)
        if self._limit is None:
            return replace(usual, byte_s=min(usual.byte_s, answer_s / request_bytes))
        pause_s = min(max(answer_s, _PAUSE_S), usual.resend_s + usual.byte_s * moved_bytes)
        most_s = max(pause_s, min(_PAUSE_MAX_S, usual.resend_max_s))
        return replace(usual, resend_s=pause_s, resend_max_s=most_s, byte_s=0.0)

    def note_answer(self, moved_bytes: int, took_s: float) -> None:
        """Note how long after the last copy of the request its answer came."""
        self._took_s.append(took_s)
        self._byte_s = min(self._byte_s, took_s / moved_bytes)

    def note_good(self, moved_bytes: int) -> None:
        """An exchange of ``moved_bytes`` was without a loss."""
        if self._limit is None:
            return
        self._good_bytes += moved_bytes
        if self._good_bytes >= _GOOD_PARTS * (self._limit + _FRAMES_BYTES):
            self._good_bytes = 0
            longer = 2 * self._limit
            self._limit = longer if longer < self.largest_bytes else None

    def note_loss(self) -> None:
        """A request has to be sent again."""
        self._good_bytes = 0
        self._limit = max((self._limit or self.largest_bytes) // 2, LEAST_PART_BYTES)
