"""Errors of the package as fields of a message, and back.

The other end does not know which function is at an address: it has neither the image's lines nor
the modules. So it marks addresses in its texts, and the client puts the names there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from utvm_deploy.base import errors
from utvm_deploy.base.errors import DeviceError, LinkError, StoppedTask, UtvmError

_MARKED = re.compile("\x02([0-9a-f]{1,16})\x03")
_NUMBERS = ("status", "index", "detail")
_REGISTERS = ("pc", "lr", "address")
_MOST_TEXT = 20_000


def mark_place(address: int) -> str:
    """Stands for the name of the code there, until ``name_places`` replaces it."""
    return f"\x02{address:x}\x03"


def name_places(text: str, place_of: Callable[[int], str]) -> str:
    """The text with a name for each marked address."""
    return _MARKED.sub(lambda found: place_of(int(found[1], 16)), text)


def shown(text: str) -> str:
    """A text of the other end without what would move the cursor of a terminal."""
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")


def error_fields(error: UtvmError) -> dict[str, Any]:
    """The error for a message."""
    fields: dict[str, Any] = {"kind": _known_kind(type(error)).__name__, "text": str(error)}
    if isinstance(error, DeviceError):
        fields |= {name: getattr(error, name) for name in _NUMBERS}
    if isinstance(error, StoppedTask):
        fields |= {name: getattr(error, name) for name in _REGISTERS}
        fields["text"] = error.cause
    return fields


def error_of(fields: Mapping[str, Any], place_of: Callable[[int], str]) -> UtvmError:
    """The error that ``error_fields`` described; LinkError if nothing of the kind was described."""
    kind, text = fields.get("kind"), fields.get("text")
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(text, str):
        return LinkError("the server sent an error that makes no sense; is it of another version?")
    text = shown(name_places(text[:_MOST_TEXT], place_of))
    made = _KINDS[kind]
    numbers = {name: _number(fields.get(name)) for name in (*_NUMBERS, *_REGISTERS)}
    if not issubclass(made, DeviceError):
        return made(text)
    known = {
        "status": numbers["status"],
        "index": numbers["index"] or 0,
        "detail": numbers["detail"] or 0,
    }
    if issubclass(made, StoppedTask):
        return made(text, **known, **{name: numbers[name] for name in _REGISTERS})  # type: ignore[arg-type]
    return made(text, **known)  # type: ignore[arg-type]


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _known_kind(kind: type[UtvmError]) -> type[UtvmError]:
    """The nearest class that is made from a text alone, or from a device's status."""
    while kind.__name__ not in _KINDS:
        (kind,) = kind.__bases__
    return kind


def _kinds() -> Iterator[type[UtvmError]]:
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, UtvmError):
            makes_itself = "__init__" in vars(one) and not issubclass(one, DeviceError)
            # These take more than a text: a path, or a program of the other computer.
            if not makes_itself:
                yield one


_KINDS: Mapping[str, type[UtvmError]] = {kind.__name__: kind for kind in _kinds()}
