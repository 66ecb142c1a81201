"""Strict reading of TOML files: every key is asked for, every other key is an error.

Used by board.py and bench_file.py. Each error is a BoardError that names the file and the key.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.errors import BoardError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Addresses and sizes of every board are 32 bit; a longer number is a typing error.
MAX_INTEGER = 0xFFFFFFFF

_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """``; did you mean 'x'?`` for the nearest choice, or nothing."""
    near = difflib.get_close_matches(word, list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class Table:
    """One TOML table being read; ``finish`` refuses the keys that nobody asked for."""

    def __init__(self, file: Path, path: str, values: Mapping[str, Any]) -> None:
        self.file = file
        self.path = path
        self._values = values
        self._asked: list[str] = []

    def error(self, key: str, problem: str) -> BoardError:
        """A BoardError naming the file and the key's full path."""
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
        # bool is an int to isinstance, but `size = true` is a mistake.
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            got = _TYPE_NAMES.get(type(value), type(value).__name__)
            raise self.error(key, f"must be {_TYPE_NAMES[wanted]}, not {got} ({value!r})")
        return value

    def _misspelt(self, key: str) -> str:
        near = difflib.get_close_matches(key, [k for k in self._values if k != key], n=1)
        return f" ({near[0]!r} is there: is it meant?)" if near else ""

    def text(self, key: str, choices: Collection[str] = ()) -> str:
        """A string that is not empty; one of ``choices`` if there are any."""
        value: str = self._get(key, str)
        if not value.strip():
            raise self.error(key, "must not be empty")
        if choices and value not in choices:
            hint = did_you_mean(value, choices)
            raise self.error(key, f"{value!r} is not one of {', '.join(sorted(choices))}{hint}")
        return value

    def integer(self, key: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
        """A whole number from ``minimum`` to ``maximum``."""
        value: int = self._get(key, int)
        if not minimum <= value <= maximum:
            raise self.error(key, f"{value} is not between {minimum} and {maximum}")
        return value

    def boolean(self, key: str) -> bool:
        """true or false."""
        value: bool = self._get(key, bool)
        return value

    def strings(self, key: str, choices: Collection[str] = ()) -> tuple[str, ...]:
        """A list of strings, each one of ``choices`` if there are any."""
        for value in self._get(key, list):
            if not isinstance(value, str):
                raise self.error(key, f"must hold strings only, not {value!r}")
            if choices and value not in choices:
                hint = did_you_mean(value, choices)
                raise self.error(key, f"{value!r} is not one of {', '.join(sorted(choices))}{hint}")
        return tuple(self._values[key])

    def table(self, key: str) -> Table:
        """A table within this one."""
        return Table(self.file, f"{self.path}.{key}" if self.path else key, self._get(key, dict))

    def tables(self, key: str) -> list[Table]:
        """An array of tables, such as ``[[memory]]``; at least one."""
        values = self._get(key, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.error(key, f"must be one or more tables, written [[{key}]]")
        prefix = f"{self.path}." if self.path else ""
        return [Table(self.file, f"{prefix}{key}[{i}]", value) for i, value in enumerate(values)]

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
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise BoardError(f"{file}: cannot be read: {exc.strerror}") from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        # The decoder's own words guess at encodings that nobody meant.
        why = (
            exc
            if isinstance(exc, tomllib.TOMLDecodeError)
            else "it is no text, or nested too deeply"
        )
        raise BoardError(f"{file}: cannot be read as TOML: {why}") from exc
    return Table(file, "", values)
