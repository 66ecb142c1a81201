"""Kinds of values of options: how the text of one is read, and what is wrong with another one."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.cli.options.option import Option, named
from utvm_deploy.frontend.files.given_shapes import Stream, parsed_shape, parsed_state
from utvm_deploy.frontend.files.image_input import parsed_image
from utvm_deploy.quality.evaluating.limits import Limit, limit_of

_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"": 1, "k": 1_000, "m": 1_000_000}
#: Seeds are what TVM's search takes for one.
_MOST_SEED = 2**31 - 1
#: A year: a larger number is a mistake.
_MOST_MINUTES = 60 * 24 * 365
_MOST_PORT = 65535
#: A server's database and one upload need some room.
_LEAST_DISK = 256 << 20
#: A watch crystal's is the slowest clock that cores run at.
_LEAST_HZ = 32_000
_MOST_UINT32 = 0xFFFFFFFF


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an integer") from None


def positive(text: str) -> int:
    """An integer above zero."""
    value = _integer(text)
    if value <= 0:
        raise ValueError(f"{text} is not above zero")
    return value


def seed(text: str) -> int:
    """What a search may begin with."""
    value = _integer(text)
    if not 0 <= value <= _MOST_SEED:
        raise ValueError(f"{text} is not a seed; give one from 0 to {_MOST_SEED:,}")
    return value


def port(text: str) -> int:
    """Of TCP; 0 is a free one."""
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_PORT:
        raise ValueError(f"{text!r} is not a port; give a number up to {_MOST_PORT}")
    return int(text)


def _real(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {what}") from None


def _not_negative(what: str, unit: str = "") -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = _real(text.removesuffix(unit), what)
        if not 0 <= value < math.inf:
            raise ValueError(f"{text!r} is not a finite number of zero or more")
        return value

    return parse


#: ``3%`` or ``3``.
percent = _not_negative("a percentage, such as 3%", "%")
#: Cycles for each byte.
rate = _not_negative("a number of cycles, such as 4")


def minutes(text: str) -> float:
    """A time to tune."""
    value = _real(text, "a number of minutes")
    if not 0 < value < _MOST_MINUTES:
        raise ValueError(
            f"{text} minutes is too little or too much time; give more than 0 "
            f"and less than {_MOST_MINUTES:,}"
        )
    return value


def value_range(text: str) -> tuple[float, float]:
    """``LOW,HIGH``."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not a range; write it as -1,1") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{text} is not a range from a lower to a higher number")
    return low, high


def _multiple(text: str, units: Mapping[str, int], behind: str, what: str) -> int:
    """A number with K, M, ... behind it; decimal multiples may be of fractions."""
    fraction = r"(?:\.\d+)?" if units is _DECIMAL else ""
    form = rf"(\d{{1,15}}{fraction})([{''.join(units)}]?){behind}"
    match = re.fullmatch(form, text.lower(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not {what}")
    return round((float if fraction else int)(match[1]) * units[match[2]])


def size(text: str) -> int:
    """Bytes, with K or M behind for binary multiples."""
    return _multiple(text, _BINARY, "i?b?", "a size, such as 65536, 64K or 1M")


def positive_size(text: str) -> int:
    """Bytes, more than 0."""
    value = size(text)
    if value == 0:
        raise ValueError("a budget of 0 bytes holds no model")
    return value


def disk_size(text: str) -> int:
    """Bytes of a server's data."""
    value = _multiple(text, _BINARY, "", "a size; give one such as 500M or 20G")
    if value < _LEAST_DISK:
        raise ValueError(f"{text} is too small; give {_LEAST_DISK >> 20}M or more")
    return value


def cycles(text: str) -> int:
    """Cycles, more than 0, with K or M behind for decimal multiples."""
    what = "a number of cycles, such as 500000 or 2M"
    value = _multiple(text, _DECIMAL, "", what)
    if value == 0:
        raise ValueError(f"{text!r} is not {what}")
    return value


def clock(text: str) -> int:
    """Hz of a core."""
    hertz = _multiple(text, _DECIMAL, "(?:hz)?", what := "a clock, such as 64M or 216000000")
    if not 0 < hertz <= _MOST_UINT32:
        raise ValueError(f"{text!r} is not {what}")
    if hertz < _LEAST_HZ:
        raise ValueError(
            f"{text!r} is {hertz} Hz, too slow for a core; give a unit, such as {hertz}M"
        )
    return hertz


def checked_size(text: str) -> str:
    """The text itself, for utvm.toml."""
    positive_size(text)
    return text


def place(text: str) -> tuple[int, int | None]:
    """The size of a memory, and its address if that is given."""
    length, at, address = text.partition("@")
    found = positive_size(length)
    try:
        start = int(address, 0) if at else None
    except ValueError:
        raise ValueError(f"{address!r} is not an address, such as 0x08000000") from None
    if start is not None and not 0 <= start <= _MOST_UINT32:
        raise ValueError(f"{address} is not an address of 32 bits")
    return found, start


def prefix(text: str) -> str:
    """The text itself, if it can begin C symbols."""
    named("compiler.c_text:check_prefix")(text)
    return text


def link(text: str) -> str:
    """The text itself, if a board may have such a link."""
    named("device.probe:check_link")(text)
    return text


def pool(text: str) -> tuple[str, int]:
    """``NAME=BYTES``, more than 0 bytes."""
    name, equals, limit = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not a pool, such as dtcm=48K")
    value = size(limit)
    if value == 0:
        raise ValueError(f"a pool of 0 bytes holds nothing; leave {name} out")
    return name, value


def pools_of(given: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Region -> bytes; UsageError for a region that was given twice."""
    found: dict[str, int] = {}
    for name, limit in given:
        if name in found:
            raise UsageError(f"--pool {name} was given twice; give one limit for each region")
        found[name] = limit
    return found


def shapes_of(given: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """Input -> shape; UsageError if one is given twice."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in given:
        if shapes.setdefault(name, shape) != shape:
            called = f"'{name}'" if name else "the shape"
            raise UsageError(f"--shape gives {called} twice, with different shapes; give it once")
    return shapes


def states_of(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Input -> output; UsageError if one is given twice, with different ones."""
    states = dict(given)
    for names in zip(*dict.fromkeys(given), strict=True):
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"--state gives '{name}' twice; give each input and output once")
    return states


def stream_of_options(options: argparse.Namespace) -> Stream | None:
    """What --stream and the options of a stream say together; UsageError if they do not fit."""
    names = ("stream", "hop", "time_axis", "end_input")
    is_stream, hop, axis, ends = (getattr(options, name, None) for name in names)
    if is_stream and hop is None:
        raise UsageError("--stream needs --hop N, the columns that a run takes")
    if not is_stream and ((hop, axis) != (None, None) or ends):
        raise UsageError("--hop, --time-axis and --end-input are for a stream; give --stream, too")
    return None if hop is None else Stream(hop, axis, bool(ends))


def image_words(text: str) -> str:
    """Words that describe an image; ValueError for others."""
    parsed_image(text)
    return text


def layers(text: str) -> str | tuple[int | str, ...]:
    """What trains: "last", "all", or positions and names with commas between."""
    if text in ("last", "all"):
        return text
    numbers = re.compile(r"-?\d+", re.ASCII)
    return tuple(int(one) if numbers.fullmatch(one) else one for one in text.split(","))


def file_or_words(text: str) -> str | Path:
    """Words that describe an image, or else the path of a file."""
    try:
        return image_words(text)
    except ValueError:
        return Path(text)


def _limit(*, is_least: bool) -> Callable[[str], Limit]:
    def parse(text: str) -> Limit:
        try:
            return limit_of(text, is_least=is_least)
        except ValueError:
            raise ValueError(f"{text!r} is not METRIC=VALUE, such as accuracy=0.9") from None

    return parse


def number_or_word(text: str) -> bool | int | str:
    """A value of a job's option as JSON has it; the server judges it."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return size(text.removesuffix("%"))
    except ValueError:
        return text


least, most = _limit(is_least=True), _limit(is_least=False)

#: What values are called, and how they are read; what is not here is a text.
READERS: Mapping[str, Callable[[str], Any]] = {
    "N": positive,
    "BYTES": positive_size,
    "BYTES[@ADDRESS]": place,
    "SIZE": disk_size,
    "CYCLES": cycles,
    "HZ": clock,
    "P%": percent,
    "X": _not_negative("a number, such as 0.5"),
    "LOW,HIGH": value_range,
    "NAME=BYTES": pool,
    "[X=]1,64": parsed_shape,
    "IN=OUT": parsed_state,
    "WORDS": image_words,
    "LINK": link,
    "PREFIX": prefix,
}
#: Values that are paths, and so is what ends like a file: ``R.jsonl``.
_PATHS = ("MODEL", "FLOATMODEL", "FILE", "DIR", "FOLDER", "DATA", "CALIB", "REPORT")


def reader(row: Option) -> Callable[[str], Any]:
    """What reads the text of an option's value; ValueError says in a sentence what is wrong."""
    if row.parse is not None:
        return row.parse
    return READERS.get(row.value, Path if row.value in _PATHS or "." in row.value else str)
