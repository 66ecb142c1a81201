"""The options of a custom operator: numbers and truths of a flexbuffer, by their names.

A flexbuffer is read from its end: the width of the root's offset, its type, the offset. Offsets
count backwards from where they stand. A map has, in front of its values, their count, and before
that the width of the offsets in its list of keys, and the offset of this list. Behind the values
stand their types, each a byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.base.errors import ModelError

_INT, _UINT, _MAP, _BOOL = 1, 2, 9, 26
_WIDTHS = (1, 2, 4, 8)
#: More options than any of these operators has.
_MOST = 64


def read_options(data: bytes) -> Mapping[str, int]:
    """Option -> value. Raises ModelError for other bytes than a map of integers and truths."""
    try:
        return _read(data)
    except (IndexError, ValueError) as error:
        raise ModelError("its options are not a flexbuffer; convert the model again") from error


def _read(data: bytes) -> Mapping[str, int]:
    width, packed = data[-1], data[-2]
    if packed >> 2 != _MAP or width not in _WIDTHS:
        raise IndexError("no map")
    root = len(data) - 2 - width
    values, size = root - _number(data, root, width), 1 << (packed & 3)
    count = _number(data, values - size, size)
    keys = values - 3 * size
    keys -= _number(data, keys, size)
    key_size = _number(data, values - 2 * size, size)
    if count > _MOST or key_size not in _WIDTHS:
        raise IndexError("too many options")
    found = {}
    for position in range(count):
        place = keys + position * key_size
        start = place - _number(data, place, key_size)
        name = data[_inside(data, start) : data.index(0, start)].decode("ascii")
        kind = data[_inside(data, values + count * size + position)] >> 2
        if kind not in (_INT, _UINT, _BOOL):
            raise ModelError(f"its option {name} is not a number; convert the model again")
        place = values + position * size
        found[name] = _number(data, place, size, is_signed=kind == _INT)
    return found


def _number(data: bytes, place: int, size: int, *, is_signed: bool = False) -> int:
    _inside(data, place + size - 1)
    return int.from_bytes(data[_inside(data, place) : place + size], "little", signed=is_signed)


def _inside(data: bytes, place: int) -> int:
    if not 0 <= place < len(data):
        raise IndexError(place)
    return place
