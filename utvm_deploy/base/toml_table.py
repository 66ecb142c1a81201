"""Strict reading of TOML files: every key is asked for, every other key is an error.

Used by boards/board.py and boards/desk_file.py. Each error is a BoardError that names the file and
the key.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.files import check_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Addresses and sizes of every board have 32 bits; a longer number is a typing error.
MAX_INTEGER = 0xFFFFFFFF
# A board file has some kilobytes. Looking for misspelt keys takes time that grows with the file.
MAX_FILE_BYTES = 256 * 1024
# Messages shorten values and keys to this length.
_MOST_SHOWN = 60
#: Fewer letters are in too many words.
_LEAST_PART = 3

_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def shown(value: object) -> str:
    """A value of the file as a message quotes it: on one line, and short."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Python prints no integer of more than 4,300 digits, alone or within a list.
        return "a value too large to print"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _shown_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= _MOST_SHOWN else shown(key)


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """``; did you mean 'x'?`` for the nearest choice, or the shortest with the word, or nothing."""
    if len(word) > _MOST_SHOWN:
        return ""
    near = difflib.get_close_matches(word, list(choices), n=1)
    if not near and len(word) >= _LEAST_PART:
        near = sorted((one for one in choices if word in one), key=len)
    return f"; did you mean {near[0]!r}?" if near else ""


class Table:
    """One table of a TOML file; ``close`` refuses the keys that nobody asked for."""

    def __init__(self, file: Path, path: str, values: Mapping[str, Any]) -> None:
        self.file = file
        self.path = path
        self._values = values
        self._asked: list[str] = []

    def error(self, key: str, problem: str) -> BoardError:
        """A BoardError naming the file and the key's full path."""
        key = _shown_key(key)
        where = f"{self.path}.{key}" if self.path and key else self.path or key
        return BoardError(f"{self.file}: {where}: {problem}")

    def has(self, key: str) -> bool:
        """Whether an optional key is there; counts as asking for it."""
        self._asked.append(key)
        return key in self._values

    @property
    def keys_present(self) -> list[str]:
        """The keys of a table whose keys are names of the user's choice."""
        return list(self._values)

    def _get(self, key: str, wanted: type) -> Any:
        self._asked.append(key)
        if key not in self._values:
            raise self.error(key, f"missing key{self._misspelt(key)}")
        value = self._values[key]
        # bool is an int for isinstance, but a mistake here.
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            got = _TYPE_NAMES.get(type(value), type(value).__name__)
            raise self.error(key, f"must be {_TYPE_NAMES[wanted]}, not {got} ({shown(value)})")
        return value

    def _misspelt(self, key: str) -> str:
        others = [k for k in self._values if k != key and len(k) <= _MOST_SHOWN]
        near = difflib.get_close_matches(key, others, n=1)
        return f" ({near[0]!r} is there: is it meant?)" if near else ""

    def text(self, key: str, choices: Collection[str] = ()) -> str:
        """A string that is not empty; one of ``choices`` if there are any."""
        value: str = self._get(key, str)
        if not value.strip():
            raise self.error(key, "must not be empty")
        self._check_string(key, value, choices)
        return value

    def _check_string(self, key: str, value: str, choices: Collection[str]) -> None:
        # Such a character would end a line of a generated file, or an argument of a program.
        if not value.replace("\t", " ").isprintable():
            raise self.error(key, f"{shown(value)} has a control character; take it out")
        if choices and value not in choices:
            hint = did_you_mean(value, choices)
            raise self.error(
                key, f"{shown(value)} is not one of {', '.join(sorted(choices))}{hint}"
            )

    def integer(self, key: str, minimum: int = 0) -> int:
        """An integer from ``minimum`` to ``MAX_INTEGER``."""
        value: int = self._get(key, int)
        if not minimum <= value <= MAX_INTEGER:
            raise self.error(key, f"{shown(value)} is not between {minimum} and {MAX_INTEGER}")
        return value

    def boolean(self, key: str) -> bool:
        """true or false."""
        value: bool = self._get(key, bool)
        return value

    def option(self, key: str) -> str | bool:
        """The value of a command's option: text, a number as text, or true."""
        self._asked.append(key)
        value = self._values[key]
        if value is True:
            return True
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(key, f"must be a string, a number or true, not {shown(value)}")
        text = str(value)
        self._check_string(key, text, ())
        return text

    def strings(self, key: str, choices: Collection[str] = ()) -> tuple[str, ...]:
        """A list of strings, each one of ``choices`` if there are any."""
        for value in self._get(key, list):
            if not isinstance(value, str):
                raise self.error(key, f"must hold strings only, not {shown(value)}")
            self._check_string(key, value, choices)
        return tuple(self._values[key])

    def spans(self, key: str) -> tuple[tuple[int, int], ...]:
        """A list of lists of an address and a size, which end within 32 bits."""
        found = []
        for value in self._get(key, list):
            is_span = isinstance(value, list) and [type(one) for one in value] == [int, int]
            if not is_span or value[0] < 0 or value[1] < 1 or sum(value) > MAX_INTEGER + 1:
                raise self.error(key, f"{shown(value)} is not [address, size] within 4 GiB")
            found.append((value[0], value[1]))
        return tuple(found)

    def table(self, key: str) -> Table:
        """A table within this one."""
        path = _shown_key(key)
        path = f"{self.path}.{path}" if self.path else path
        return Table(self.file, path, self._get(key, dict))

    def tables(self, key: str) -> list[Table]:
        """An array of tables, such as ``[[memory]]``; at least one."""
        values = self._get(key, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.error(key, f"must be one or more tables, written [[{key}]]")
        path = _shown_key(key)
        path = f"{self.path}.{path}" if self.path else path
        return [Table(self.file, f"{path}[{i}]", value) for i, value in enumerate(values)]

    def table_or_tables(self, key: str) -> list[Table]:
        """``[key]`` or ``[[key]]``, as the file has it."""
        return self.tables(key) if isinstance(self._values.get(key), list) else [self.table(key)]

    def finish(self) -> None:
        """Refuse every key that was not asked for."""
        for key in self._values:
            if key not in self._asked:
                raise self.error(key, f"unknown key{did_you_mean(key, self._asked)}")


def read_toml(file: Path) -> Table:
    """The file's top table; a file that is absent or not TOML is a BoardError."""
    return read_toml_text(file)[0]


def read_toml_text(file: Path) -> tuple[Table, str]:
    """The file's top table, and the text that it was read from."""
    text = ""
    try:
        check_regular(file)
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BoardError(
                f"{file}: cannot be read as TOML: it has more than {MAX_FILE_BYTES:,} bytes"
            )
        text = data.decode("utf-8")
        return Table(file, "", tomllib.loads(text)), text
    except OSError as exc:
        raise BoardError(f"{file}: cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise BoardError(f"{file}: cannot be read as TOML: {_why_no_toml(exc, text)}") from exc


def _why_no_toml(error: Exception, text: str) -> str:
    if isinstance(error, tomllib.TOMLDecodeError):
        return str(error)
    # The texts of these errors guess encodings, or mention limits of Python.
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    number = max(re.finditer(r"[\d_]+", text), key=lambda found: len(found[0]))
    line = text.count("\n", 0, number.start()) + 1
    return f"the number at line {line} is too long; the numbers of a board have 32 bits"
