"""A device's process that can be restarted, and a stream whose faults are parameters."""

from __future__ import annotations

import random
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from utvm_deploy.device.link.stream import PipeStream, Stream

Direction = Literal["to device", "to host"]
Kind = Literal["drop", "corrupt", "duplicate", "split", "delay", "stall", "garbage", "reset"]

DIRECTIONS: tuple[Direction, ...] = ("to device", "to host")
# Faults that a link must get over by itself.
PASSING: tuple[Kind, ...] = ("drop", "corrupt", "duplicate", "split", "delay", "garbage")

# Zeros and codes of COBS among them: the beginnings of frames that never end.
GARBAGE = b"Hard fault\r\n\x00\x05\x01\x00\xff\x02"
DELAY_S = 0.01
# Whatever should end soon ends well within this, however busy the machine; a lost wait never does.
PATIENCE_S = 30.0


class HostDevice:
    """The host program in a child process. A restart is a new process on the same stream."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.stream: Stream = self._start()

    def _start(self) -> Stream:
        self.process = subprocess.Popen(
            [str(self._program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return PipeStream.of_process(self.process)

    def restart(self) -> Stream:
        """Kill it and start another one. Its stream."""
        self.close()
        self.stream = self._start()
        return self.stream

    def close(self) -> None:
        self.stream.close()
        self.process.kill()
        self.process.wait(10)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with which byte, counted in one direction from the stream's making."""

    kind: Kind
    direction: Direction
    at: int
    length: int = 1  # bytes dropped, corrupted or duplicated
    mask: int = 0x55  # corrupt: what the byte is xored with


@dataclass
class _Piece:
    """Bytes on their way, and what happens before they may pass."""

    data: bytes
    not_before_s: float = 0.0


class _Lane:
    """One direction."""

    def __init__(self, direction: Direction, faults: tuple[Fault, ...]) -> None:
        self._faults = [fault for fault in faults if fault.direction == direction]
        self._passed = 0
        self.is_stalled = False
        self.bytes_seen = 0

    def add(self, fault: Fault) -> None:
        self._faults.append(replace(fault, at=self._passed + fault.at))

    def take(self, data: bytes, reset: Callable[[], None]) -> list[_Piece]:
        """``data`` as it comes out at the other end."""
        pieces = [_Piece(b"")]
        for byte in data:
            position, self._passed = self._passed, self._passed + 1
            out = bytes([byte])
            for fault in self._faults:
                inside = fault.at <= position < fault.at + fault.length
                if fault.kind == "corrupt" and inside:
                    out = bytes([byte ^ fault.mask])
                elif fault.kind == "drop" and inside:
                    out = b""
                elif position != fault.at:
                    continue
                elif fault.kind == "duplicate":
                    out = out * (fault.length + 1)
                elif fault.kind == "garbage":
                    out = GARBAGE + out
                elif fault.kind == "split":
                    pieces.append(_Piece(b""))
                elif fault.kind == "delay":
                    pieces.append(_Piece(b"", time.monotonic() + DELAY_S))
                elif fault.kind == "stall":
                    self.is_stalled = True
                elif fault.kind == "reset":
                    # What was on its way to or from the device is gone.
                    reset()
                    pieces = [_Piece(b"")]
            if not self.is_stalled:
                pieces[-1].data += out
        return [piece for piece in pieces if piece.data]


class FlakyStream:
    """A stream with faults. ``restart`` gives the stream of the device after a reset."""

    def __init__(
        self,
        inner: Stream,
        faults: tuple[Fault, ...] = (),
        restart: Callable[[], Stream] | None = None,
    ) -> None:
        self.inner = inner
        self._restart = restart
        self._lanes = {direction: _Lane(direction, faults) for direction in DIRECTIONS}
        self._arriving: deque[_Piece] = deque()

    def add_fault(self, fault: Fault) -> None:
        """A fault that counts its bytes from now on."""
        self._lanes[fault.direction].add(fault)

    def bytes_passed(self, direction: Direction) -> int:
        return self._lanes[direction].bytes_seen

    def reset(self) -> None:
        """Pull the device's plug and put it in again."""
        assert self._restart is not None
        self.inner = self._restart()
        self._arriving.clear()

    def inject(self, data: bytes) -> None:
        """Let ``data`` arrive at the host, before anything that is still under way."""
        self._arriving.append(_Piece(data))

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        lane = self._lanes["to host"]
        while True:
            if self._arriving:
                first = self._arriving.popleft()
                wait_s = first.not_before_s - time.monotonic()
                if wait_s > 0:
                    time.sleep(min(wait_s, max(deadline - time.monotonic(), 0)))
                if first.not_before_s > time.monotonic():
                    self._arriving.appendleft(first)
                    return b""
                if len(first.data) > max_bytes:
                    rest = _Piece(first.data[max_bytes:])
                    self._arriving.appendleft(rest)
                return first.data[:max_bytes]
            left_s = deadline - time.monotonic()
            if left_s < 0:
                return b""
            data = self.inner.read(max_bytes, left_s)
            lane.bytes_seen += len(data)
            self._arriving.extend(lane.take(data, self.reset))

    def write(self, data: bytes, timeout_s: float) -> None:
        lane = self._lanes["to device"]
        lane.bytes_seen += len(data)
        for piece in lane.take(data, self.reset):
            time.sleep(max(piece.not_before_s - time.monotonic(), 0))
            self.inner.write(piece.data, timeout_s)

    def close(self) -> None:
        self.inner.close()


class NoisyStream:
    """A stream that changes or loses bytes by chance, each on its own, in both directions.

    The same ``seed`` and the same bytes give the same noise.
    """

    def __init__(self, inner: Stream, seed: int, corrupted: float = 0.0, lost: float = 0.0) -> None:
        self.inner = inner
        self.frames = self.again = self.bytes_passed = 0
        self._random = random.Random(seed)
        self.corrupted, self.lost = corrupted, lost
        self._latest = b""

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        return self._through(self.inner.read(max_bytes, timeout_s))

    def write(self, data: bytes, timeout_s: float) -> None:
        self.frames += 1
        self.again += data == self._latest
        self._latest = data
        self.inner.write(self._through(data), timeout_s)

    def close(self) -> None:
        self.inner.close()

    def _through(self, data: bytes) -> bytes:
        self.bytes_passed += len(data)
        if not self.corrupted and not self.lost:
            return data
        chance, out = self._random.random, bytearray()
        for byte in data:
            if chance() < self.lost:
                continue
            out.append(byte ^ self._random.randrange(1, 256) if chance() < self.corrupted else byte)
        return bytes(out)
