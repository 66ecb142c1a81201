"""A stream that does something to one frame in a hundred, in both directions."""

from __future__ import annotations

import random
import time
from collections import Counter, deque

from utvm_deploy.device.link.stream import Stream

FAULTS = ("corrupt", "drop", "duplicate", "split", "delay")
DELAY_S = 0.02


class BadLine:
    """``inner`` with faults. Frames end with a zero byte; each fault is to one whole frame."""

    def __init__(self, inner: Stream, seed: int, rate: float) -> None:
        self._inner = inner
        self._random = random.Random(seed)
        self._rate = rate
        # From the device: the frame that is arriving, and pieces that may be read from a time on.
        self._partial = b""
        self._pieces: deque[tuple[float, bytes]] = deque()
        #: What was done, by direction and kind; and how many frames passed.
        self.done: Counter[tuple[str, str]] = Counter()

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        while not self._pieces:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return b""
            *frames, self._partial = self._cut(self._partial + self._inner.read(65536, left_s))
            for frame in frames:
                self._pieces.extend(self._pass("to host", frame))
        not_before_s, piece = self._pieces.popleft()
        wait_s = not_before_s - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, max(deadline_s - time.monotonic(), 0.0)))
            if not_before_s > time.monotonic():
                self._pieces.appendleft((not_before_s, piece))
                return b""
        if len(piece) > max_bytes:
            self._pieces.appendleft((0.0, piece[max_bytes:]))
        return piece[:max_bytes]

    def write(self, data: bytes, timeout_s: float) -> None:
        for not_before_s, piece in self._pass("to device", data):
            time.sleep(max(not_before_s - time.monotonic(), 0.0))
            self._inner.write(piece, timeout_s)

    def close(self) -> None:
        self._inner.close()

    def forget(self) -> None:
        """The device lost its power: what was on its way is gone."""
        self._partial = b""
        self._pieces.clear()

    @staticmethod
    def _cut(data: bytes) -> list[bytes]:
        """Frames with their closing zeros, and what is left over."""
        pieces = data.split(b"\0")
        return [piece + b"\0" for piece in pieces[:-1]] + [pieces[-1]]

    def _pass(self, direction: str, frame: bytes) -> list[tuple[float, bytes]]:
        if len(frame) < 2:  # the zero before a frame
            return [(0.0, frame)]
        self.done[direction, "frames"] += 1
        if self._random.random() >= self._rate:
            return [(0.0, frame)]
        kind = self._random.choice(FAULTS)
        self.done[direction, kind] += 1
        later_s = time.monotonic() + DELAY_S * self._random.random()
        at = self._random.randrange(len(frame))
        if kind == "corrupt":
            bad = bytearray(frame)
            bad[at] ^= self._random.randrange(1, 256)
            return [(0.0, bytes(bad))]
        if kind == "drop":
            return []
        if kind == "duplicate":
            return [(0.0, frame + frame)]
        if kind == "split":
            return [(0.0, frame[:at]), (later_s, frame[at:])]
        return [(later_s, frame)]
