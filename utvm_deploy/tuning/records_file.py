"""A records file that is open for adding lines.

Each line is written and flushed to the disk at once, so that a killed process loses no record. A
last line that was cut is removed when the file is opened for writing. A new file is made with the
first record, so a run without records leaves no file.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from utvm_deploy.base.errors import RecordsError
from utvm_deploy.base.files import check_regular
from utvm_deploy.records import ModelRecord, Record, Records, parsed
from utvm_deploy.records.fields import NotJson
from utvm_deploy.records.line import record_of

log = logging.getLogger(__name__)


class RecordsFile:
    """A records file open for adding to; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.parent.is_dir():
            raise RecordsError(
                f"cannot write records to {path}: there is no folder {path.parent}; make it first"
            )
        self._descriptor: int | None = None
        self.records = Records()
        if os.path.lexists(path):
            try:
                with self._exclusive() as descriptor:
                    self.records = Records(parsed(path, self._repaired(descriptor)))
            except BaseException:
                self._close()
                raise
        elif not os.access(path.parent, os.W_OK):
            raise RecordsError(
                f"cannot write records to {path}: {path.parent} is not writable; give "
                "another file's name"
            )

    def __enter__(self) -> RecordsFile:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._close()

    def append(self, record: Record | ModelRecord) -> None:
        """One more line, on the disk when this returns."""
        self.extend([record])

    def extend(self, records: Iterable[Record | ModelRecord]) -> None:
        """Several lines, on the disk when this returns."""
        new = list(records)
        with self._exclusive() as descriptor:
            for record in new:
                self._write(descriptor, (record.to_line() + "\n").encode())
            os.fsync(descriptor)
        for record in new:
            self.records.add(record)

    @contextmanager
    def _exclusive(self) -> Iterator[int]:
        """The file, while nobody else repairs or writes it."""
        while True:
            if self._descriptor is None:
                self._descriptor = self._open()
            with _locked(self._descriptor):
                # The user may have put another file there.
                if not _is_replaced(self.path, self._descriptor):
                    yield self._descriptor
                    return
            self._close()

    def _open(self) -> int:
        try:
            check_regular(self.path)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise RecordsError(
                f"cannot write records to {self.path}: {error.strerror}; give another file's name"
            ) from error

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, descriptor: int, line: bytes) -> None:
        # One call for one line: a kill, or a full disk, cuts at most the last one.
        try:
            why = "" if os.write(descriptor, line) == len(line) else "the disk is full"
        except OSError as error:
            why = str(error.strerror)
        if why:
            raise RecordsError(
                f"cannot write records to {self.path}: {why}; make room and continue: earlier "
                "measurements are kept"
            )

    def _repaired(self, descriptor: int) -> bytes:
        """The content without a last line that was cut."""
        data = self.path.read_bytes()
        if not data or data.endswith(b"\n"):
            return data
        whole, _, last = data.rpartition(b"\n")
        try:
            record_of(last)
        except NotJson:
            kept = len(whole) + 1 if b"\n" in data else 0
            # A file of another kind is refused before it is changed.
            is_known = any(True for _ in parsed(self.path, data[:kept]))
            if not is_known and not last.startswith(b'{"schema"'[: len(last)]):
                raise RecordsError(
                    f"{self.path} is not a records file; give another name"
                ) from None
            os.ftruncate(descriptor, kept)
            log.warning("%s: the last line was cut and is dropped", self.path)
            return data[:kept]
        except ValueError:
            # Whole, but not for this version: kept, unless all of the file is something else.
            list(parsed(self.path, data + b"\n"))
        os.write(descriptor, b"\n")
        return data + b"\n"


def _is_replaced(path: Path, descriptor: int) -> bool:
    """Whether another file has the name now; a file that was deleted is not replaced."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Nobody else repairs or writes the file meanwhile."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
