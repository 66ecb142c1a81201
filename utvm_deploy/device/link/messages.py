"""The message table, which the host, the C runtime and PROTOCOL.md share.

All numbers on the wire are defined here. The header of the C runtime is generated:

    python -m utvm_deploy.device.link.messages            writes utvm_deploy/runtime/utvm_protocol.h

A frame is COBS-encoded between zero bytes; decoded it is, little endian,

    version u8 | opcode u8 | length u16 | sequence u32 | session u32 | payload | CRC-32 u32
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from utvm_deploy.base import paths
from utvm_deploy.targets.table import TARGETS

# Raised whenever a frame or a message changes its meaning; runtime and host must agree on it. The
# header, the CRC and the opcode and status of HELLO stay the same in every version, so that two
# ends of different versions can report the difference.
PROTOCOL_VERSION = 4

# Set in the opcode of everything that the device sends.
REPLY_BIT = 0x80

# Words that one task can pass to its function.
MAX_ARGUMENTS = 12

# The most words of a fault record.
MAX_FAULT_WORDS = 16

# Longest image id that HELLO reports, in bytes; a longer one is cut.
MAX_IMAGE_BYTES = 64

# Smallest payload that a port must have room for, in both directions.
MIN_PAYLOAD_BYTES = 128


class Status(IntEnum):
    """First word of every reply. ``index`` and ``detail`` after it say where."""

    OK = 0
    ACCEPTED = 1  # EXECUTE only: the tasks are valid and begin now; their result follows
    VERSION = 2  # the frame is of another protocol version; detail: the device's
    NO_SESSION = 3  # the session is not the one in force; detail: the nonce of the boot
    OPCODE = 4  # unknown opcode; detail: the opcode
    LENGTH = 5  # the payload's length does not fit the message; detail: the length
    TOO_LARGE = 6  # the reply would not fit the device's buffer; detail: room in bytes
    ADDRESS = 7  # outside every region with that right; index: task, detail: address
    ARGUMENTS = 8  # too many arguments; index: task, detail: their number
    UNSUPPORTED = 9  # this port cannot do that; detail: the opcode
    FAULT = 10  # a task faulted; index: task, detail: which of its calls; a fault record follows
    TIMEOUT = 11  # a task was stopped at its deadline; as FAULT


class Right(IntFlag):
    """What the host may do with a region of the device's memory."""

    READ = 1
    WRITE = 2
    EXECUTE = 4


class TickUnit(IntEnum):
    """What one tick of the device's timer stands for."""

    CYCLES = 0  # of the core
    NANOSECONDS = 1
    INSTRUCTIONS = 2


_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


@dataclass(frozen=True)
class Field:
    """One little-endian integer of a message."""

    name: str
    type: str  # key of _FORMATS
    meaning: str

    @property
    def size_bytes(self) -> int:
        return struct.calcsize("<" + _FORMATS[self.type])


@dataclass(frozen=True)
class Layout:
    """Fixed fields, and what the rest of the payload holds."""

    fields: tuple[Field, ...] = ()
    tail: str = ""

    @property
    def format(self) -> str:
        return "<" + "".join(_FORMATS[field.type] for field in self.fields)

    @property
    def size_bytes(self) -> int:
        return struct.calcsize(self.format)

    def pack(self, *values: int) -> bytes:
        return struct.pack(self.format, *values)

    def unpack(self, data: bytes) -> dict[str, int]:
        """The fixed fields by name; ``struct.error`` if ``data`` is too short."""
        values = struct.unpack_from(self.format, data)
        return dict(zip((field.name for field in self.fields), values, strict=True))

    def offsets(self) -> Iterator[tuple[Field, int]]:
        offset = 0
        for field in self.fields:
            yield field, offset
            offset += field.size_bytes


@dataclass(frozen=True)
class Message:
    """One opcode. ``request`` is None for messages that the device sends without a request."""

    name: str
    opcode: int
    meaning: str
    request: Layout | None = Layout()
    reply: Layout = Layout()  # what follows the outcome

    @property
    def request_bytes(self) -> int:
        """Size of a request's fixed fields."""
        return self.request.size_bytes if self.request else 0

    def pack_request(self, *values: int) -> bytes:
        return self.request.pack(*values) if self.request else b""


HEADER = Layout(
    (
        Field("version", "u8", "PROTOCOL_VERSION of the sender"),
        Field("opcode", "u8", "of the message; with REPLY_BIT from the device"),
        Field("length", "u16", "of the payload, in bytes"),
        Field("sequence", "u32", "of the request; a reply repeats it; 0 if unasked"),
        Field("session", "u32", "that the frame belongs to; 0 in a HELLO and a boot frame"),
    )
)

CRC_BYTES = 4

# What every reply begins with.
OUTCOME = Layout(
    (
        Field("status", "u16", "one of Status"),
        Field("index", "u16", "which task of the list"),
        Field("detail", "u32", "which address, length or number"),
    )
)

TASK = Layout(
    (
        Field("function", "u32", "address; the bit that marks functions does not matter"),
        Field("repeat", "u16", "how many times it is called, each timed"),
        Field("argc", "u16", "how many words of arguments follow"),
        Field("deadline", "u32", "of all its calls, in microseconds of the device; 0: none"),
    ),
    tail="argc words, u32 each",
)

# What follows the outcome if a task did not end by itself. What is not known is 0.
FAULT = Layout(
    (
        Field("architecture", "u16", "whose words these are: the tag of a target"),
        Field("count", "u16", "how many words follow, at most MAX_FAULT_WORDS"),
    ),
    tail="count words, u32 each; the target says what they mean",
)

REGION = Layout(
    (
        Field("address", "u32", "first byte"),
        Field("size", "u32", "in bytes"),
        Field("rights", "u32", "of Right"),
    )
)

# How a debugger and the runtime pass a request where there is no line (utvm_serve_mailbox).
MAILBOX = Layout(
    (
        Field("version", "u32", "PROTOCOL_VERSION of the image"),
        Field("nonce", "u32", "of the device's boot"),
        Field("request", "u32", "where the payload of a request is put"),
        Field("reply", "u32", "where the payload of its reply is found"),
        Field("opcode", "u32", "of the request; with REPLY_BIT once it is done"),
        Field("length", "u32", "of the request's payload, then of the reply's, in bytes"),
        Field("code", "u32", "first byte of the code written since the last request"),
        Field("code_bytes", "u32", "its size; 0: none was written"),
    )
)

_ADDRESS = Field("address", "u32", "first byte")
_SIZE = Field("size", "u32", "in bytes")

MESSAGES = (
    Message("BOOT", 0, "the device started; sent once, without a request", request=None),
    Message(
        "HELLO", 1, "asks for a session's id, which the header of the reply has; changes nothing"
    ),
    Message(
        "OPEN",
        8,
        "begins the session whose id HELLO gave: who are you",
        reply=Layout(
            (
                Field("runtime_version", "u32", "UTVM_VERSION, 16.16"),
                Field("request_bytes", "u16", "longest payload of a request"),
                Field("reply_bytes", "u16", "longest payload of a reply, outcome included"),
                Field("ticks_per_second", "u32", "rate of the timer"),
                Field("tick_unit", "u16", "one of TickUnit"),
                Field("region_count", "u16", "how many regions REGIONS can list"),
                Field("workspace", "u32", "first byte of the memory that the host may lay out"),
                Field("workspace_bytes", "u32", "its size"),
                Field("nonce", "u32", "of the device's boot"),
            ),
            tail="the image's id, ASCII",
        ),
    ),
    Message(
        "READ",
        2,
        "copy memory to the host",
        request=Layout((_ADDRESS, _SIZE)),
        reply=Layout(tail="the bytes"),
    ),
    Message("WRITE", 3, "copy memory to the device", request=Layout((_ADDRESS,), tail="the bytes")),
    Message(
        "EXECUTE",
        4,
        "run a list of tasks",
        request=Layout(tail="tasks"),
        reply=Layout(tail="one u64 of ticks for every call, in order"),
    ),
    Message(
        "CHECKSUM",
        5,
        "CRC-32 of memory",
        request=Layout((_ADDRESS, _SIZE, Field("crc", "u32", "of what came before; 0 at first"))),
        reply=Layout((Field("crc", "u32", "of all so far"),)),
    ),
    Message(
        "REGIONS",
        6,
        "what may be read, written and executed",
        request=Layout((Field("first", "u32", "position of the first region wanted"),)),
        reply=Layout(tail="regions, as many as fit"),
    ),
    Message("RESET", 7, "restart the device after this reply"),
)

BY_NAME: Mapping[str, Message] = {message.name: message for message in MESSAGES}
BY_OPCODE: Mapping[int, Message] = {message.opcode: message for message in MESSAGES}


def opcode_name(opcode: int) -> str:
    """``EXECUTE`` or ``EXECUTE reply``; a number if the table has no such opcode."""
    message = BY_OPCODE.get(opcode & ~REPLY_BIT)
    name = message.name if message else f"opcode {opcode & ~REPLY_BIT}"
    return f"{name} reply" if opcode & REPLY_BIT else name


def _offsets(prefix: str, layout: Layout, base: int = 0) -> Iterator[str]:
    for field, offset in layout.offsets():
        yield f"// {field.meaning} ({field.type})"
        yield f"#define UTVM_{prefix}_{field.name.upper()} {base + offset}u"
    if layout.tail:
        yield f"// then: {layout.tail}"
    yield f"#define UTVM_{prefix}_BYTES {base + layout.size_bytes}u"
    yield ""


def header_lines() -> Iterator[str]:
    """The text of ``utvm_protocol.h``, line by line in file order."""
    yield "// The numbers on the wire; PROTOCOL.md says what they mean."
    yield "//"
    yield "// Generated from utvm_deploy/device/link/messages.py, do not edit:"
    yield "//     python -m utvm_deploy.device.link.messages"
    yield "//"
    yield "// SPDX-License-Identifier: Apache-2.0"
    yield "#ifndef UTVM_PROTOCOL_H"
    yield "#define UTVM_PROTOCOL_H"
    yield ""
    yield f"#define UTVM_PROTOCOL_VERSION {PROTOCOL_VERSION}"
    yield f"#define UTVM_REPLY_BIT 0x{REPLY_BIT:02x}u"
    yield f"#define UTVM_MAX_ARGUMENTS {MAX_ARGUMENTS}u"
    yield f"#define UTVM_MAX_FAULT_WORDS {MAX_FAULT_WORDS}u"
    yield f"#define UTVM_MAX_IMAGE_BYTES {MAX_IMAGE_BYTES}u"
    yield f"#define UTVM_MIN_PAYLOAD_BYTES {MIN_PAYLOAD_BYTES}u"
    yield f"#define UTVM_CRC_BYTES {CRC_BYTES}u"
    yield ""
    yield "enum utvm_opcode {"
    for message in MESSAGES:
        yield f"    // {message.meaning}"
        yield f"    UTVM_OPCODE_{message.name} = {message.opcode},"
    yield "};"
    yield ""
    for name, numbers in (("status", Status), ("right", Right), ("tick_unit", TickUnit)):
        yield f"enum utvm_{name} {{"
        for number in numbers:
            yield f"    UTVM_{name.upper()}_{number.name} = {number.value},"
        yield "};"
        yield ""
    targets = sorted(TARGETS.values(), key=lambda one: one.tag)
    yield "enum utvm_architecture {"
    for target in targets:
        yield f"    UTVM_ARCHITECTURE_{target.name.upper()} = {target.tag},"
    yield "};"
    yield ""
    yield "/// Positions of the words in a fault record of each architecture ///"
    yield ""
    for target in targets:
        prefix = f"UTVM_FAULT_{target.name.upper()}"
        for position, name in enumerate(target.faults.names):
            yield f"#define {prefix}_{name.upper()} {position}u"
        yield f"#define {prefix}_WORDS {len(target.faults.names)}u"
        yield ""
    yield "/// Offsets in a decoded frame ///"
    yield ""
    yield from _offsets("HEADER", HEADER)
    yield "/// Offsets in a reply's payload: what every one begins with ///"
    yield ""
    yield from _offsets("OUTCOME", OUTCOME)
    yield "/// Offsets in payloads ///"
    yield ""
    for message in MESSAGES:
        if message.request is not None:
            yield from _offsets(message.name, message.request)
        yield from _offsets(message.name + "_REPLY", message.reply, OUTCOME.size_bytes)
    yield "/// Offsets in records ///"
    yield ""
    yield from _offsets("TASK", TASK)
    yield from _offsets("FAULT", FAULT)
    yield from _offsets("REGION", REGION)
    yield from _offsets("MAILBOX", MAILBOX)
    yield "#endif"


def header_text() -> str:
    """The whole of ``utvm_protocol.h``."""
    return "\n".join(header_lines()) + "\n"


if __name__ == "__main__":
    (paths.runtime_dir() / "utvm_protocol.h").write_text(header_text(), encoding="ascii")
