"""Writes vectors.json, which the tests of both ends read:

    python -m tests.link.make_vectors

A change of an old vector is a change of the protocol: it needs a new PROTOCOL_VERSION.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path

from utvm_deploy.device.link.frame import Frame, cobs_encode, encode_frame

VECTORS = Path(__file__).with_name("vectors.json")

# The examples of the article that introduced COBS, by way of Wikipedia, and the block's edges.
COBS_INPUTS = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\x11\x00",
    b"\x11\x22\x00\x33",
    b"\x11\x22\x33\x44",
    b"\x11\x00\x00\x00",
    bytes(range(1, 254)),
    bytes(range(1, 255)),
    bytes(range(255)),
    bytes(range(1, 256)),
    bytes(range(2, 256)) + b"\x00",
    bytes(range(3, 256)) + b"\x00\x01",
    b"\xff" * 508,
    b"\xff" * 509 + b"\x00",
)


# Words of a fault record: a process, a Cortex-M, and an architecture to come.
FAULT_INPUTS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (0, (11, 0x1234, 0, 0x10)),
    (1, (5, 0x0800_0100, 0x0800_0201, 0x2000_0800, 1 << 24, 1 << 9 | 1 << 15, 0, 0, 0xF000_0000)),
    (0xFFFF, tuple(range(1, 17))),
    (2, ()),
)


def vectors() -> dict[str, object]:
    noise = random.Random(7)
    payloads = [b"", b"\0" * 8, b"utvm", bytes(range(256)), b"\x01" * 242, noise.randbytes(700)]
    # Bodies of just under, exactly and just over a block of 254: header and CRC take 16 bytes.
    payloads += [b"\xaa" * (254 - 16 + more) for more in range(-2, 3)]
    frames = []
    for number, payload in enumerate(payloads):
        frame = Frame(0x80 | number, 0x01020304 + number, noise.getrandbits(32), payload)
        frames.append(
            {
                "opcode": frame.opcode,
                "sequence": frame.sequence,
                "session": frame.session,
                "payload": payload.hex(),
                "encoded": encode_frame(frame).hex(),
            }
        )
    return {
        "cobs": [[data.hex(), cobs_encode(data).hex()] for data in COBS_INPUTS],
        "crc": [[data.hex(), zlib.crc32(data)] for data in (b"", b"123456789", *payloads)],
        "frames": frames,
        "faults": [
            {
                "architecture": tag,
                "words": list(words),
                "record": struct.pack(f"<HH{len(words)}I", tag, len(words), *words).hex(),
            }
            for tag, words in FAULT_INPUTS
        ],
    }


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="ascii")
