"""What a running job writes: read while it grows, and kept small.

A job may write without end, half lines or anything else. What a server gets of it is bounded.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

#: The longest log that is kept, and the longest file of a log before it is cut.
LOG_BYTES, LOG_FILE_BYTES = 1 << 20, 8 << 20
#: The most that one message to the server carries of a log, or of lines that are followed.
MESSAGE_BYTES = 32 << 10
#: A reader that is further behind leaves something out.
_BEHIND_BYTES = 4 * MESSAGE_BYTES
#: The most events that one message carries; of progress the last one is enough.
_MESSAGE_EVENTS = 100
#: The most that a verb may print with --json, and that one file and all files may have.
RESULT_BYTES, FILE_BYTES, FILES_BYTES = 64 << 20, 256 << 20, 512 << 20


class Tail:
    """Whole lines that were added to a file."""

    def __init__(self, path: Path, *, at: int = 0, may_skip: bool = False) -> None:
        self.path = path
        self._at = at
        self._may_skip = may_skip
        self._left_out = 0  # bytes that were never read, and not said yet

    def read(self) -> str:
        """The new lines, as far as one message carries them."""
        if self._left_out:
            said, self._left_out = f"[{self._left_out:,} bytes are left out here]\n", 0
            return said
        try:
            size = self.path.stat().st_size
            if self._may_skip and size - self._at > _BEHIND_BYTES:
                self._left_out, self._at = size - self._at, size
                return self.read()
            with self.path.open("rb") as file:
                file.seek(self._at)
                new = file.read(MESSAGE_BYTES)
        except OSError:
            return ""
        # A line that is longer than a message goes in parts.
        whole = new[: new.rfind(b"\n") + 1] or (new if len(new) == MESSAGE_BYTES else b"")
        self._at += len(whole)
        return whole.decode("utf-8", "replace")

    def restart(self, size: int) -> None:
        """The file was emptied, and had ``size`` bytes."""
        self._left_out += max(0, size - self._at)
        self._at = 0


class Log:
    """The file that a child's standard error is appended to, which is emptied when it is large."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail = Tail(path, may_skip=True)
        self._before = b""

    def bound(self) -> None:
        """Keep the file small; what is written meanwhile may be lost."""
        try:
            size = self.path.stat().st_size
            if size <= LOG_FILE_BYTES:
                return
            with self.path.open("r+b") as file:
                kept = self._before + _last_part(file)
                # The child wrote while that was read. Only what it writes between the last
                # read, which finds nothing, and the next line is lost.
                while more := file.read(LOG_BYTES):
                    kept += more
                size = file.tell()
                # The child appends, so its next line is at the beginning.
                file.truncate(0)
            self._before = kept[-LOG_BYTES:]
        except OSError:
            return
        self.tail.restart(size)

    def end(self) -> bytes:
        """The last part of all that was written."""
        with self.path.open("rb") as file:
            return (self._before + _last_part(file))[-LOG_BYTES:]


def _last_part(file: BinaryIO) -> bytes:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - LOG_BYTES))
    return file.read()


def events_in(text: str) -> list[dict[str, Any]]:
    """The events in lines; what is none is left out."""
    found: list[dict[str, Any]] = []
    progress: dict[str, Any] | None = None
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            continue
        if event["event"] == "progress":
            progress = event
        else:
            found.append(event)
    return [*found[-_MESSAGE_EVENTS:], *([progress] if progress else [])]


def files_of(work: Path, names: tuple[str, ...]) -> tuple[dict[str, bytes], str]:
    """The files that are there, by name, and a sentence if one is too large to be kept.

    A verb that failed may have made none. Raises OSError.
    """
    found: dict[str, bytes] = {}
    room = FILES_BYTES
    for name in names:
        path = work / name
        size = sum(one.stat().st_size for one in _within(path))
        if size > min(FILE_BYTES, room):
            return found, (
                f"{name} has {size:,} bytes, and a job may make {FILE_BYTES:,} in a file and "
                f"{FILES_BYTES:,} in all; it is not kept"
            )
        if path.is_dir():
            found[f"{name}.zip"] = _zipped(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        room -= size
    return found, ""


def _within(path: Path) -> list[Path]:
    """The file, or the files in the folder; no links, which lead elsewhere."""
    if path.is_symlink():
        return []
    if path.is_file():
        return [path]
    return [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_within(folder)):
            archive.write(path, Path(folder.name) / path.relative_to(folder))
    return packed.getvalue()


def news_of(kinds: Mapping[str, Tail]) -> dict[str, Any]:
    """What is new in the files that a server follows, by kind; empty if nothing is."""
    news: dict[str, Any] = {kind: text for kind, tail in kinds.items() if (text := tail.read())}
    if "events" in news:
        news["events"] = events_in(news["events"])
    return news
