"""JSON -> frozen dataclasses, by their annotations.

Every field must be there, no other may be, and each value must be of its type.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: Counts beyond what 64 bits hold were never counted.
_MOST_INTEGER = 2**64
#: What names, versions and errors need.
_MOST_CHARACTERS = 4096


class NotAsDeclared(ValueError):
    """A field is missing, unknown or of another type; says which."""


def decode(value: Any, wanted: type[T], where: str) -> T:
    """``value`` as a ``wanted``; ``where`` is its place, for errors."""
    return cast(T, _decode(value, wanted, where))


def _decode(value: Any, wanted: Any, where: str) -> Any:
    if is_dataclass(wanted):
        return _object(value, wanted, where)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (one for one in arguments if one is not type(None))
        return _decode(value, inner, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise NotAsDeclared(f"{where} is not a list")
        return tuple(_decode(one, arguments[0], f"{where}[{n}]") for n, one in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise NotAsDeclared(f"{where} is not an object")
        return {
            _text(key, f"a name in {where}"): _decode(one, arguments[1], f"{where}.{key[:40]}")
            for key, one in value.items()
        }
    return _simple(value, wanted, where)


def _object(value: Any, wanted: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise NotAsDeclared(f"{where or 'the file'} is not an object")
    inside = f"{where}." if where else ""
    hints = get_type_hints(wanted)
    names = [one.name for one in fields(wanted)]
    for name in names:
        if name not in value:
            raise NotAsDeclared(f"{inside}{name} is missing")
    for name in value:
        if name not in names:
            raise NotAsDeclared(f"{inside}{name[:40]!r} is not known")
    return wanted(**{name: _decode(value[name], hints[name], f"{inside}{name}") for name in names})


def _simple(value: Any, wanted: Any, where: str) -> Any:
    if wanted is str:
        return _text(value, where)
    if wanted is bool:
        if not isinstance(value, bool):
            raise NotAsDeclared(f"{where} is neither true nor false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAsDeclared(f"{where} is not a number")
    if wanted is int:
        if not isinstance(value, int) or not 0 <= value < _MOST_INTEGER:
            raise NotAsDeclared(f"{where} is not a count")
        return value
    # Not the other way round: NaN compares with nothing, and no float holds every integer.
    if not abs(value) < _MOST_INTEGER:
        raise NotAsDeclared(f"{where} is not a number of cycles")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise NotAsDeclared(f"{where} is not text of at most {_MOST_CHARACTERS:,} characters")
    # A terminal would obey control characters.
    if not all(character.isprintable() for character in value):
        raise NotAsDeclared(f"{where} holds characters that cannot be printed")
    return value
