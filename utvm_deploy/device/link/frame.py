"""Bytes to frames and back; no I/O. The runtime's utvm_frame.c is the other end.

    0x00 | COBS(header, payload, CRC-32) | 0x00

With COBS, zero bytes are only at the ends of frames. So a decoder that lost its position finds it
at the next zero. It accepts a frame only if its length and its CRC agree with the bytes that
arrived.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from utvm_deploy.device.link.messages import CRC_BYTES, HEADER, PROTOCOL_VERSION

# Header, the longest payload that a u16 can say, CRC, and what COBS adds to them.
_MAX_DECODED_BYTES = HEADER.size_bytes + 0xFFFF + CRC_BYTES
MAX_ENCODED_BYTES = _MAX_DECODED_BYTES + _MAX_DECODED_BYTES // 254 + 1


@dataclass(frozen=True)
class Frame:
    """A message with its envelope."""

    opcode: int
    sequence: int
    session: int
    payload: bytes
    version: int = PROTOCOL_VERSION


@dataclass(frozen=True)
class Damage:
    """Bytes between two zeros that are not a frame: noise, text, or a damaged frame."""

    data: bytes
    why: str


def cobs_encode(data: bytes) -> bytes:
    """``data`` without zero bytes, a little longer."""
    out = bytearray()
    for run in data.split(b"\0"):
        at = 0
        while len(run) - at >= 254:
            out.append(255)
            out += run[at : at + 254]
            at += 254
        out.append(len(run) - at + 1)
        out += run[at:]
    return bytes(out)


def cobs_decode(data: bytes) -> bytes | None:
    """What ``cobs_encode`` was given; None if ``data`` ends within a block."""
    out = bytearray()
    at = 0
    while at < len(data):
        code = data[at]
        end = at + code
        if code == 0 or end > len(data):
            return None
        out += data[at + 1 : end]
        at = end
        if code != 255 and at < len(data):
            out.append(0)
    return bytes(out)


def encode_frame(frame: Frame) -> bytes:
    """The bytes to send, from zero to zero."""
    body = (
        HEADER.pack(frame.version, frame.opcode, len(frame.payload), frame.sequence, frame.session)
        + frame.payload
    )
    crc = zlib.crc32(body).to_bytes(CRC_BYTES, "little")
    return b"\0" + cobs_encode(body + crc) + b"\0"


def decode_frame(data: bytes) -> Frame | Damage:
    """What lies between two zeros."""
    decoded = cobs_decode(data)
    if decoded is None or len(decoded) < HEADER.size_bytes + CRC_BYTES:
        return Damage(data, "it ended early")
    body, crc = decoded[:-CRC_BYTES], decoded[-CRC_BYTES:]
    header = HEADER.unpack(body)
    payload = body[HEADER.size_bytes :]
    if header["length"] != len(payload):
        return Damage(data, f"it says {header['length']} bytes and holds {len(payload)}")
    if zlib.crc32(body) != int.from_bytes(crc, "little"):
        return Damage(data, "its CRC is wrong")
    return Frame(
        header["opcode"], header["sequence"], header["session"], payload, header["version"]
    )


class FrameDecoder:
    """Bytes in any portions to frames."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._too_long = False

    @property
    def is_within_frame(self) -> bool:
        """Whether bytes arrived that no zero has ended yet."""
        return bool(self._pending)

    def feed(self, data: bytes) -> list[Frame | Damage]:
        """Take ``data`` in; what it completed."""
        items: list[Frame | Damage] = []
        first, *rest = data.split(b"\0")
        self._append(first)
        for following in rest:
            if self._pending:
                whole = bytes(self._pending)
                self._pending.clear()
                if self._too_long:
                    self._too_long = False
                    items.append(Damage(whole, "it was longer than any frame"))
                else:
                    items.append(decode_frame(whole))
            self._append(following)
        return items

    def _append(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) > MAX_ENCODED_BYTES:
            # Keep a little for the trace; nothing of it can be a frame any more.
            self._too_long = True
            del self._pending[64:]
