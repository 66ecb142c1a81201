"""What the server keeps of jobs that have not ended: a folder for each.

    log         what the verb says, over all attempts
    followed    lines of the file that the verb grows, such as a tune job's records
    events      JSON lines: progress, and the points of a tuning curve
    deaths      a line for each time that the job ended with its worker

Everything is appended. What the disk has no room for waits in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

LOG, FOLLOWED, EVENTS, DEATHS = "log", "followed", "events", "deaths"
#: The most that a folder keeps of each; of records, which are few bytes each, all.
_MOST_BYTES = {LOG: 8 << 20, EVENTS: 8 << 20}
#: The most that waits in memory for room on the disk.
_WAITING_BYTES = 64 << 20
#: How long a folder stays after its job has ended, for those who read it.
_STAY_S = 60.0


class Live:
    """The folders, for one thread. A folder is ``folder / key``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[tuple[str, str], bytes] = {}
        self._ended: list[tuple[float, str]] = []
        self._deaths: dict[str, int] = {}
        self._seen: set[tuple[str, str]] = set()

    def add_lines(self, key: str, name: str, text: str) -> None:
        """Append to a file of a job."""
        if not text:
            return
        place = (key, name)
        if sum(len(one) for one in self._waiting.values()) < _WAITING_BYTES:
            self._waiting[place] = self._waiting.get(place, b"") + text.encode()
        self._write(place)

    def add_events(self, key: str, events: Iterable[Mapping[str, Any]]) -> None:
        """Append events as lines."""
        self.add_lines(key, EVENTS, "".join(json.dumps(event) + "\n" for event in events))

    def add_death(self, key: str, reason: str) -> int:
        """Remember that the job ended with its worker; returns how often it did."""
        known = max(self._deaths.get(key, 0), len(self.read(key, DEATHS).splitlines()))
        self._deaths[key] = known + 1
        self.add_lines(key, DEATHS, reason + "\n")
        return known + 1

    def flush(self) -> None:
        """Try again what the disk had no room for, and remove folders that nobody needs."""
        for place in list(self._waiting):
            self._write(place)
        while self._ended and time.monotonic() - self._ended[0][0] > _STAY_S:
            self._remove(self._ended.pop(0)[1])

    def read(self, key: str, name: str) -> bytes:
        """Whole lines: the last one may have been cut when the server was killed."""
        with contextlib.suppress(OSError):
            content = (self._folder / key / name).read_bytes()
            return content[: content.rfind(b"\n") + 1] + self._waiting.get((key, name), b"")
        return self._waiting.get((key, name), b"")

    def end(self, key: str) -> None:
        """The job has ended, and what is needed of its folder is stored."""
        self._deaths.pop(key, None)
        self._waiting = {place: text for place, text in self._waiting.items() if place[0] != key}
        self._seen = {place for place in self._seen if place[0] != key}
        self._ended.append((time.monotonic(), key))

    def jobs(self) -> list[str]:
        """The jobs that have a folder."""
        with contextlib.suppress(OSError):
            return [path.name for path in self._folder.iterdir()]
        return []

    def keep_only(self, keys: Iterable[str]) -> None:
        """Remove the folders of all other jobs: an earlier server was killed before it did."""
        for key in set(self.jobs()).difference(keys):
            self._remove(key)

    def _write(self, place: tuple[str, str]) -> None:
        key, name = place
        text = self._waiting.get(place, b"")
        path = self._folder / key / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                size = file.tell()
                if size >= _MOST_BYTES.get(name, size + 1):
                    text = b""
                elif size and place not in self._seen and not _ends_a_line(path):
                    # A killed server left half a line; nothing more of it comes.
                    text = b"\n" + text
                _append(file, text, size)
                self._seen.add(place)
        except OSError:
            return
        self._waiting.pop(place, None)

    def _remove(self, key: str) -> None:
        shutil.rmtree(self._folder / key, ignore_errors=True)


def _append(file: FileIO, text: bytes, size: int) -> None:
    """Append the whole text, or nothing. Raises OSError."""
    rest = text
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(size)
        raise


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
