"""Packets of the GDB remote serial protocol: bytes to packets and back. Pure.

    $ body # checksum        + received well     - send it again     0x03 stop the core

In a body ``}`` escapes the byte after it and ``*`` repeats the byte before it. The protocol is
described in the GDB manual, appendix E.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

INTERRUPT = b"\x03"
ACK = b"+"
NACK = b"-"

# The longest packet taken, escapes and repeats undone. Servers name at most 64 KiB; a line that
# sends garbage must not eat the host's memory.
MAX_BODY_BYTES = 1 << 20

_ESCAPE = ord("}")
_ESCAPE_XOR = 0x20
_REPEAT = ord("*")
# A repeat count is printable: this is added to it.
_REPEAT_BIAS = 29
_MUST_BE_ESCAPED = b"#$}*"


@dataclass(frozen=True)
class Packet:
    """A whole packet, escapes and repeats undone."""

    body: bytes


@dataclass(frozen=True)
class Acknowledgement:
    """Whether the other end received our last packet well."""

    is_good: bool


@dataclass(frozen=True)
class DamagedPacket:
    """Bytes that were meant as a packet."""

    why: str
    data: bytes


Item = Packet | Acknowledgement | DamagedPacket


def checksum(body: bytes) -> int:
    """Sum of the bytes, modulo 256."""
    return sum(body) & 0xFF


def encode_packet(body: bytes) -> bytes:
    """``body``, whose binary part is escaped, as a packet on the wire."""
    return b"$%b#%02x" % (body, checksum(body))


def escape(data: bytes) -> bytes:
    """Binary data for a body."""
    for byte in (_ESCAPE, *(b for b in _MUST_BE_ESCAPED if b != _ESCAPE)):
        data = data.replace(bytes([byte]), bytes([_ESCAPE, byte ^ _ESCAPE_XOR]))
    return data


def escaped_prefix(data: bytes, room: int) -> tuple[int, bytes]:
    """How many bytes of ``data`` fit ``room`` once escaped, and these bytes escaped."""
    part = data[:room]
    special = sum(part.count(byte) for byte in _MUST_BE_ESCAPED)
    part = part[: max(room - special, room // 2)]
    return len(part), escape(part)


def expand(body: bytes) -> bytes:
    """Undo escapes and repeats; ValueError if they make no sense."""
    if _ESCAPE not in body and _REPEAT not in body:
        return body
    out = bytearray()
    at = 0
    while at < len(body):
        byte = body[at]
        if byte in (_ESCAPE, _REPEAT) and at + 1 == len(body):
            raise ValueError("ends within an escape or a repeat")
        if byte == _ESCAPE:
            out.append(body[at + 1] ^ _ESCAPE_XOR)
            at += 2
        elif byte == _REPEAT:
            count = body[at + 1] - _REPEAT_BIAS
            if not out or count < 1 or body[at + 1] > ord("~"):
                raise ValueError("repeats nothing, or by a count that is none")
            out += out[-1:] * count
            at += 2
        else:
            out.append(byte)
            at += 1
        if len(out) > MAX_BODY_BYTES:
            raise ValueError(f"is longer than {MAX_BODY_BYTES} bytes")
    return bytes(out)


class _State(Enum):
    BETWEEN = auto()
    BODY = auto()
    CHECKSUM = auto()


class PacketDecoder:
    """Finds packets in the arriving bytes, in any portions."""

    def __init__(self) -> None:
        self._state = _State.BETWEEN
        self._body = bytearray()
        self._digits = bytearray()
        # A notification ("%...") looks like a packet and answers nothing.
        self._is_notification = False

    def feed(self, data: bytes) -> list[Item]:
        """What is complete now."""
        items: list[Item] = []
        at = 0
        while at < len(data):
            if self._state is _State.BETWEEN:
                self._between(data[at], items)
                at += 1
            elif self._state is _State.BODY:
                at = self._take_body(data, at, items)
            else:
                self._digits.append(data[at])
                at += 1
                if len(self._digits) == 2:
                    self._finish(items)
        return items

    def _between(self, byte: int, items: list[Item]) -> None:
        if byte in b"$%":
            self._begin(byte)
        elif byte in ACK + NACK:
            items.append(Acknowledgement(byte == ACK[0]))
        # Anything else between packets is noise, as GDB sees it too.

    def _begin(self, byte: int) -> None:
        self._state = _State.BODY
        self._is_notification = byte == ord("%")
        self._body.clear()
        self._digits.clear()

    def _take_body(self, data: bytes, at: int, items: list[Item]) -> int:
        """The bytes of the body; a "$" in it means that the last packet lost its end."""
        ends = [end for end in (data.find(b"#", at), data.find(b"$", at)) if end >= 0]
        end = min(ends, default=len(data))
        self._body += data[at:end]
        if len(self._body) > MAX_BODY_BYTES:
            items.append(DamagedPacket(f"is longer than {MAX_BODY_BYTES} bytes", b""))
            self._state = _State.BETWEEN
            self._body.clear()
            return end
        if end == len(data):
            return end
        if data[end] == ord("$"):
            items.append(DamagedPacket("lost its end", bytes(self._body)))
            self._begin(data[end])
        else:
            self._state = _State.CHECKSUM
        return end + 1

    def _finish(self, items: list[Item]) -> None:
        body = bytes(self._body)
        self._state = _State.BETWEEN
        try:
            told = int(self._digits.decode("ascii"), 16)
        except ValueError:
            told = -1
        if told != checksum(body):
            items.append(DamagedPacket("has a wrong checksum", body))
        elif not self._is_notification:
            try:
                items.append(Packet(expand(body)))
            except ValueError as error:
                items.append(DamagedPacket(str(error), body))


@dataclass(frozen=True)
class Stop:
    """Why the core stopped. ``is_gone``: the server ended the program instead."""

    signal: int
    text: str

    @property
    def is_gone(self) -> bool:
        return self.text[0] in "WX"
