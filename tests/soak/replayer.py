"""A stream that remembers every whole frame, and brings old ones again, in both directions."""

from __future__ import annotations

import random
from collections import Counter

from utvm_deploy.device.link.stream import Stream

#: So many frames of each direction are remembered; new ones take the place of any.
REMEMBERED = 4096


class Replayer:
    """``inner`` with old frames before and behind what is sent, and among what arrives.

    An old frame was sent before the one that is under way now: the same one once more would be a
    repetition, which links make themselves.
    """

    def __init__(self, inner: Stream, seed: int, rate: float) -> None:
        self.inner = inner
        self._random = random.Random(seed)
        self._rate = rate
        self._past: dict[str, list[bytes]] = {"to device": [], "to host": []}
        self._latest: dict[str, bytes] = {"to device": b"", "to host": b""}
        self._partial = b""
        self._arrived = b""
        #: How many frames were brought again, by direction and the frame's opcode.
        self.replayed: Counter[str] = Counter()

    def write(self, data: bytes, timeout_s: float) -> None:
        self._remember("to device", data)
        before, behind = self._old("to device"), self._old("to device")
        self.inner.write(before + data + behind, timeout_s)

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        if not self._arrived:
            self._partial += self.inner.read(65536, timeout_s)
            frames = self._partial.split(b"\0")
            self._partial = frames.pop()
            for frame in filter(None, frames):
                whole = b"\0" + frame + b"\0"
                self._remember("to host", whole)
                self._arrived += self._old("to host") + whole + self._old("to host")
        out, self._arrived = self._arrived[:max_bytes], self._arrived[max_bytes:]
        return out

    def close(self) -> None:
        self.inner.close()

    def forget(self) -> None:
        """The device lost its power: what was on its way is gone. What was recorded is not."""
        self._partial = self._arrived = b""

    def _remember(self, direction: str, frame: bytes) -> None:
        latest, self._latest[direction] = self._latest[direction], frame
        past = self._past[direction]
        if not latest or latest == frame:
            return
        if len(past) < REMEMBERED:
            past.append(latest)
        else:
            past[self._random.randrange(REMEMBERED)] = latest

    def _old(self, direction: str) -> bytes:
        """Nothing, or a few old frames in any order."""
        past = self._past[direction]
        # Each old frame that the device gets brings a refusal, which is an old frame too.
        rate = self._rate if direction == "to device" else self._rate / 4
        if not past or self._random.random() > rate:
            return b""
        chosen = [self._random.choice(past) for _ in range(self._random.randrange(1, 4))]
        self.replayed[direction] += len(chosen)
        return b"".join(frame for frame in chosen)
