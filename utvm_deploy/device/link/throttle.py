"""A stream that is no faster than a serial line of some rate, for trying what slow lines cost."""

from __future__ import annotations

import time

from utvm_deploy.device.link.stream import Stream

#: A byte on the line: start bit, eight bits, stop bit.
BITS_PER_BYTE = 10
# Portions in which bytes get through, as from a UART's driver.
_PORTION_BYTES = 64


class ThrottledStream:
    """Another stream whose bytes take their time, in each direction by itself."""

    def __init__(self, stream: Stream, baud: int) -> None:
        self._stream = stream
        self._byte_s = BITS_PER_BYTE / baud
        # When the line is free again.
        self._reading_until = 0.0
        self._writing_until = 0.0

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        data = self._stream.read(min(max_bytes, _PORTION_BYTES), timeout_s)
        self._reading_until = self._wait(self._reading_until, len(data))
        return data

    def write(self, data: bytes, timeout_s: float) -> None:
        for start in range(0, len(data), _PORTION_BYTES):
            portion = data[start : start + _PORTION_BYTES]
            self._writing_until = self._wait(self._writing_until, len(portion))
            self._stream.write(portion, timeout_s)

    def close(self) -> None:
        self._stream.close()

    def _wait(self, busy_until: float, count: int) -> float:
        """Until ``count`` bytes went over a line that is busy until then; when that was."""
        now = time.monotonic()
        done = max(now, busy_until) + count * self._byte_s
        # Sleeping is coarse: what was slept too long, the next bytes need not wait.
        if done > now:
            time.sleep(done - now)
        return done
