"""Connections to the server's database: one that writes, and several that read meanwhile."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from utvm_deploy.base.database import BUSY_TIMEOUT_S, compact, open_database, transaction
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.service.server.store.refusals import NoRoom

Row = tuple[Any, ...]

#: Connections that wait for the next reader. More may be open while more threads read.
_SPARE_READERS = 8
#: The page cache of each reader, in KiB: the web server has up to 40 threads that read.
_READER_CACHE_KIB = 1024
#: The write-ahead log is cut back to this size when it has been copied into the database.
_LOG_BYTES = 4 << 20
#: Pages of 4 KiB that ``compact`` frees at a time, while those who write wait.
_STEP_PAGES = 2048


class Connections:
    """A context manager that threads may share.

    A block of ``reading`` sees one state of the database, and waits for no writer. All methods
    raise UtvmError if the database cannot be used, and NoRoom if the disk is full.
    """

    def __init__(self, path: Path, migrations: Sequence[str], *, advice: str) -> None:
        self._path = path
        self._migrations = migrations
        self._advice = advice
        self._writer: sqlite3.Connection | None = None
        self._writing = threading.RLock()
        self._spare: list[sqlite3.Connection] = []
        self._spare_lock = threading.Lock()
        # Whether this thread is inside ``changing``.
        self._thread = threading.local()

    def __enter__(self) -> Connections:
        try:
            self._writer = open_database(
                self._path, self._migrations, advice=self._advice, write_ahead=True
            )
            # After the server confirmed that something is stored, a power cut must not lose it.
            self._writer.execute("PRAGMA synchronous = FULL")
            self._writer.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except (sqlite3.Error, OSError) as error:
            room = "make room there, or " if _is_full(error) else ""
            raise UtvmError(
                f"the server's database {self._path} cannot be used: {error}; {room}{self._advice}"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
        with self._spare_lock:
            for connection in self._spare:
                connection.close()
            self._spare.clear()

    def rows(self, sql: str, *values: object) -> list[Row]:
        """What one query finds."""
        with self.reading() as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries that belong together."""
        if getattr(self._thread, "is_changing", False):
            yield self._open_writer()
            return
        with _told():
            connection = self._take()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are stored at the block's end: all of them, or none.

        Blocks inside such a block belong to it.
        """
        with self._writing:
            connection = self._open_writer()
            if connection.in_transaction:
                yield connection
                return
            self._thread.is_changing = True
            try:
                with _told(), transaction(connection):
                    yield connection
            finally:
                self._thread.is_changing = False

    def compact(self) -> None:
        """Give pages that hold nothing any more, and the log, back to the disk."""
        with self._writing, _told():
            connection = self._open_writer()
            compact(connection, _STEP_PAGES)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            raise UtvmError("the server's database is closed; start the server again")
        return self._writer

    def _take(self) -> sqlite3.Connection:
        self._open_writer()
        with self._spare_lock, suppress(IndexError):
            return self._spare.pop()
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._spare_lock:
            if self._writer is not None and len(self._spare) < _SPARE_READERS:
                self._spare.append(connection)
                return
        connection.close()


def _is_full(error: Exception) -> bool:
    return "is full" in str(error)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of SQLite as one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        if _is_full(error):
            raise NoRoom(
                "the disk of the server is full, so nothing was stored; make room there"
            ) from error
        raise UtvmError(
            f"the server's database cannot be used: {error}; look at its disk, then start the "
            "server again"
        ) from error
    except OSError as error:
        raise UtvmError(f"the server's database cannot be used: {error.strerror}") from error
