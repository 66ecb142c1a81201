"""Opens SQLite databases whose version is in ``PRAGMA user_version``.

    database = open_database(path, MIGRATIONS)

``migrations[n]`` is SQL that brings version n to n + 1; an empty file has version 0.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from utvm_deploy.base.errors import UtvmError

#: Another process may be writing.
BUSY_TIMEOUT_S = 30.0


def open_database(
    path: Path, migrations: Sequence[str], *, advice: str, write_ahead: bool = False
) -> sqlite3.Connection:
    """The database, made or brought to today's version if necessary.

    ``write_ahead`` chooses WAL, which lets others read during a write. It needs memory that
    processes share, which those on several hosts with one folder do not have. ``advice`` ends the
    sentence for a database that is too new. The connection may be used by one thread at a time.

    Raises UtvmError if a newer version of utvm wrote it, and sqlite3.Error or OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        if _version(database) == 0:
            # Only an empty database can get this.
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if write_ahead:
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
        _migrate(database, path, migrations, advice)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of the block's changes, or none."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back where the disk was full.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def compact(database: sqlite3.Connection, most_pages: int = 0) -> None:
    """Give pages that hold nothing any more back to the disk; 0: all of them.

    Other threads and processes wait meanwhile.
    """
    # ``execute`` takes one step, which frees one page; this takes all steps.
    database.executescript(f"PRAGMA incremental_vacuum({most_pages})")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _migrate(
    database: sqlite3.Connection, path: Path, migrations: Sequence[str], advice: str
) -> None:
    """Each step is one transaction: a process that dies leaves a whole version."""
    today = len(migrations)
    while (version := _version(database)) != today:
        if version > today:
            raise UtvmError(
                f"{path} was written by a newer utvm (version {version} of the database; this utvm "
                f"knows up to {today}); upgrade utvm, or {advice}"
            )
        with transaction(database):
            # Another process may have been faster.
            if _version(database) == version:
                for statement in migrations[version].split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {version + 1}")
