"""A records file open for adding to.

A line is written and flushed to the disk at once, so that a killed process loses nothing that it
recorded; a last line that was cut is dropped when the file is next opened for writing.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from utvm_deploy.errors import RecordsError
from utvm_deploy.files import check_regular
from utvm_deploy.records import Record, Records, parsed

log = logging.getLogger(__name__)


class RecordsFile:
    """A records file open for adding to; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.parent.is_dir():
            raise RecordsError(
                f"cannot write records to {path}: there is no folder {path.parent}; make it first"
            )
        try:
            check_regular(path)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise RecordsError(
                f"cannot write records to {path}: {error.strerror}; give another file's name"
            ) from error
        try:
            with self._locked():
                self.records = Records(parsed(path, self._repaired()))
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> RecordsFile:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._descriptor)

    def append(self, record: Record) -> None:
        """One more line, on the disk when this returns."""
        self.extend([record])

    def extend(self, records: Iterable[Record]) -> None:
        """Several lines, on the disk when this returns."""
        new = list(records)
        with self._locked():
            for record in new:
                self._write((record.to_line() + "\n").encode())
            os.fsync(self._descriptor)
        for record in new:
            self.records.add(record)

    def _write(self, line: bytes) -> None:
        # One call for one line: whoever kills us, or a full disk, cuts at most the last one.
        try:
            why = "" if os.write(self._descriptor, line) == len(line) else "the disk is full"
        except OSError as error:
            why = str(error.strerror)
        if why:
            raise RecordsError(
                f"cannot write records to {self.path}: {why}; make room and go on: what was "
                "measured before is kept"
            )

    def _repaired(self) -> bytes:
        """The content, after a last line that was cut is gone."""
        data = self.path.read_bytes()
        if not data or data.endswith(b"\n"):
            return data
        whole, _, last = data.rpartition(b"\n")
        try:
            Record.from_line(last)
        except ValueError:
            kept = len(whole) + 1 if b"\n" in data else 0
            # A file of something else is refused before a byte of it is gone.
            is_known = any(True for _ in parsed(self.path, data[:kept]))
            if not is_known and not last.startswith(b'{"schema"'[: len(last)]):
                raise RecordsError(f"{self.path} is no records file; give another name") from None
            os.ftruncate(self._descriptor, kept)
            log.warning("%s: the last line was cut and is dropped", self.path)
            return data[:kept]
        os.write(self._descriptor, b"\n")
        return data + b"\n"

    def _locked(self) -> _Locked:
        return _Locked(self._descriptor)


class _Locked:
    """Nobody else repairs or writes the file meanwhile."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
