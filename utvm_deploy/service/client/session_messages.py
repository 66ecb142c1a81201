"""The messages of a session with a board elsewhere.

    message = length of the header (4 bytes, little-endian) │ header (JSON object) │ body

A request has an ``op`` and an ``id``. Its reply has the same ``id``, and an ``error`` if it failed.
Messages without an id are the server's own: what a client waits for, and why a session ended. The
empty message says that its sender is there.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.base.errors import LinkError

#: Another number is another set of messages.
SESSION_VERSION = 1
#: The most bytes of memory or image in one message, and the most bytes of a message.
PART_BYTES = 1 << 20
MESSAGE_BYTES = 2 << 20
#: An image has debug information, which is most of it.
IMAGE_BYTES = 256 << 20
#: The least often that a client says that it is there, and how long it may be silent.
HEARTBEAT_S = 5.0
SILENCE_S = 30.0
#: No deadline in a request is longer; a session is over earlier.
LONGEST_TIMEOUT_S = 7 * 86_400.0
#: The empty message.
ALIVE = b""

_LENGTH = struct.Struct("<I")
_MOST_ADDRESS = (1 << 64) - 1


@dataclass(frozen=True)
class Message:
    """One message; ``fields`` is what its header holds."""

    fields: Mapping[str, Any]
    body: bytes = field(default=b"", repr=False)


def encode(fields: Mapping[str, Any], body: bytes = b"") -> bytes:
    """The bytes of a message."""
    header = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(header)) + header + body


def decode(data: bytes) -> Message:
    """The message of these bytes; LinkError if they are none."""
    if not _LENGTH.size <= len(data) <= MESSAGE_BYTES:
        raise LinkError(f"a message of {len(data)} bytes is not a message of a session")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    if end > len(data):
        raise LinkError(f"a message of {len(data)} bytes cannot have a header of {length}")
    try:
        fields = json.loads(data[_LENGTH.size : end], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LinkError(f"the header of a message is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise LinkError("the header of a message is not a JSON object")
    return Message(fields, bytes(data[end:]))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


# What each field of a request must be.


def _from(least: int, most: int) -> Callable[[object], bool]:
    """Whether a value is an integer of a range."""
    return lambda value: type(value) is int and least <= value <= most


_is_integer, _is_count = _from(-(1 << 31), _MOST_ADDRESS), _from(0, _MOST_ADDRESS)
_is_size, _is_image_size = _from(0, PART_BYTES), _from(1, IMAGE_BYTES)
_is_repeat = _from(-(1 << 31), (1 << 31) - 1)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_seconds(value: object) -> bool:
    is_number = type(value) in (int, float)
    return is_number and math.isfinite(value) and 0 <= value <= LONGEST_TIMEOUT_S  # type: ignore[arg-type, operator]


def _is_task(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 4:
        return False
    function, arguments, repeat, deadline_s = value
    return (
        _is_integer(function)
        and isinstance(arguments, list)
        and all(_is_integer(one) for one in arguments)
        and _is_repeat(repeat)
        and (deadline_s is None or _is_seconds(deadline_s))
    )


def _are_tasks(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_task, value))


#: Requests, and what their headers hold besides the id.
REQUESTS: Mapping[str, Mapping[str, Callable[[object], bool]]] = {
    # Before the image runs.
    "open": {
        "version": _is_count,
        "digest": _is_text,
        "template": _is_text,
        "link": _is_text,
        "cycle_model": _is_flag,
        "image_bytes": _is_image_size,
    },
    "image": {},
    "start": {},
    # The primitives.
    "hello": {},
    "regions": {},
    "read": {"address": _is_count, "size": _is_size},
    "write": {"address": _is_count},
    "execute": {"tasks": _are_tasks, "timeout_s": _is_seconds},
    "checksum": {"address": _is_count, "size": _is_count},
    "reset": {},
    # Of the board itself.
    "restart": {},
    "notes": {},
    "counted": {},
    "report": {},
}


#: What the headers of replies hold besides the id, and which replies have a body.
REPLIES: Mapping[str, tuple[str, ...]] = {
    "hello": ("hello",),
    "regions": ("regions",),
    "checksum": ("crc",),
    "notes": ("notes",),
}
_WITH_BODY = frozenset({"read", "execute", "counted", "report"})


def check_reply(op: str, message: Message) -> None:
    """LinkError if a message is not a reply to such a request."""
    wanted = {"id", *REPLIES.get(op, ())}
    if message.fields.keys() != wanted or (message.body and op not in _WITH_BODY):
        raise LinkError(
            f"the server's answer to the request {op!r} has the fields "
            f"{sorted(map(str, message.fields))!r:.200} and {len(message.body)} bytes, and it has "
            f"{sorted(wanted)}; is the server of another version?"
        )


def check_request(message: Message) -> None:
    """LinkError if a message is not one of the requests."""
    fields = dict(message.fields)
    op, number = fields.pop("op", None), fields.pop("id", None)
    wanted = REQUESTS.get(op) if isinstance(op, str) else None
    if wanted is None:
        raise LinkError(f"there is no request {str(op)[:40]!r}")
    if not _is_count(number):
        raise LinkError(f"the request {op!r} has no number")
    if fields.keys() != wanted.keys():
        raise LinkError(f"the request {op!r} needs the fields {sorted(wanted)}")
    for name, is_right in wanted.items():
        if not is_right(fields[name]):
            raise LinkError(f"{name} of the request {op!r} is not what it must be")


def pack_words(words: Sequence[int]) -> bytes:
    """Numbers of 64 bits, as a body."""
    return struct.pack(f"<{len(words)}Q", *words)


def unpack_words(body: bytes) -> tuple[int, ...]:
    """What ``pack_words`` packed; LinkError if the size is wrong."""
    if len(body) % 8:
        raise LinkError(f"a body of {len(body)} bytes does not hold numbers of 64 bits")
    return struct.unpack(f"<{len(body) // 8}Q", body)
