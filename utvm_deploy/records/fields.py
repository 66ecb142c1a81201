"""Fields of a line, each with its type: anything else is an error.

All functions raise ValueError, whose text names the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

#: Larger numbers were never measured; they also do not fit a C type or a float.
MOST = (1 << 63) - 1


class NotJson(ValueError):
    """A line is not JSON, for example because it was cut while it was written."""


def line_of(value: Mapping[str, Any]) -> str:
    """A JSON object in one line, without line break."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def object_in(line: str | bytes, what: str) -> Mapping[str, Any]:
    """The JSON object that a line holds."""
    try:
        value = json.loads(line, parse_constant=_no_constant)
    except _NoNumber as error:
        raise ValueError(str(error)) from None
    except (ValueError, RecursionError):
        # The decoder's own words guess at encodings that nobody meant.
        raise NotJson("it is not JSON") from None
    return object_of(value, what)


def object_of(value: object, what: str) -> Mapping[str, Any]:
    """``value``, which is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def schema_of(value: Mapping[str, Any]) -> int:
    """Which form the line has."""
    found = value.get("schema")
    if type(found) is not int:
        raise ValueError(f"schema {str(found)[:40]!r} is not known here")
    return found


class _NoNumber(ValueError):
    """NaN or Infinity, which Python's decoder takes."""


def _no_constant(name: str) -> NoReturn:
    raise _NoNumber(f"{name} is not a number in JSON")


def text(value: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Text that can be printed."""
    found = value.get(name, default)
    if not isinstance(found, str) or not found.isprintable():
        raise ValueError(f"{name} is not text")
    return found


def truth(value: Mapping[str, Any], name: str) -> bool:
    """True or false; false where it is not there."""
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise ValueError(f"{name} is neither true nor false")
    return found


def is_integer(value: object) -> bool:
    """Whether this is an integer of 64 bits, and not a boolean."""
    return type(value) is int and abs(value) <= MOST


def count(value: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """An integer from 0."""
    found = value.get(name, default)
    if type(found) is not int or not 0 <= found <= MOST:
        raise ValueError(f"{name} is not an integer from 0 that fits 64 bits")
    return found


def number(value: Mapping[str, Any], name: str) -> float:
    """A number from 0, whole or not."""
    found = value.get(name)
    # A number beyond what a float holds becomes infinite; NaN compares with nothing.
    if type(found) not in (int, float) or not 0 <= found <= MOST:  # type: ignore[operator]
        raise ValueError(f"{name} is not a number from 0 that fits 64 bits")
    return float(found)  # type: ignore[arg-type]
