"""Frozen dataclasses <-> JSON values, strictly: what comes back has the declared types or fails.

Serves the archives that the compiler writes and reads back; ``ValueError`` says what is wrong.
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_Record = TypeVar("_Record")

#: In the metadata of a field that archives of earlier versions do not have. It is left out where it
#: has its default, so those versions read what they could have written themselves.
_ADDED = "is_added"


def to_json(value: Any, omit: tuple[str, ...] = ()) -> Any:
    """A dataclass as a dict (without the fields in ``omit``), a tuple as a list."""
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in omit]
        left_out = {one.name for one in _added(value) if getattr(value, one.name) == one.default}
        return {name: to_json(getattr(value, name)) for name in names if name not in left_out}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[_Record], value: Any, **given: Any) -> _Record:
    """The dataclass that ``to_json`` wrote; ``given`` are the fields that it left out."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__} is not an object")
    hints = get_type_hints(kind)
    missing = {one.name: one.default for one in _added(kind) if one.name not in value}
    given = {**missing, **given}
    expected = set(hints) - set(given)
    if set(value) != expected:
        wrong = ", ".join(sorted(map(str, set(value) ^ expected)))
        raise ValueError(f"{kind.__name__} has missing or unknown keys: {wrong}")
    decoded = {name: _decode(hints[name], value[name], name) for name in expected}
    return kind(**decoded, **given)


def _added(kind: Any) -> list[Field[Any]]:
    return [one for one in fields(kind) if one.metadata.get(_ADDED)]


def _decode(hint: Any, value: Any, name: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return tuple(_decode(get_args(hint)[0], item, name) for item in value)
    if isinstance(hint, UnionType):
        if value is None:
            return None
        (inner,) = (kind for kind in get_args(hint) if kind is not type(None))
        return _decode(inner, value, name)
    if is_dataclass(hint):
        return from_json(hint, value)  # type: ignore[arg-type]
    # JSON writes 1.0 as 1.0, but other tools may not.
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"{name} is not of type {hint.__name__}")
    return value
