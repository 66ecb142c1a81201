"""The database of runs: its tables, and how a database of an older version gets today's.

``PRAGMA user_version`` holds the version. ``_MIGRATIONS[n]`` brings version n to n + 1.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from utvm_deploy.base.errors import UtvmError

#: Another process may be writing.
BUSY_TIMEOUT_S = 10.0
_MIGRATIONS = (
    """
    CREATE TABLE runs (
        key TEXT PRIMARY KEY,
        verb TEXT NOT NULL,
        started REAL NOT NULL,
        seconds REAL NOT NULL,
        exit_code INTEGER NOT NULL,
        board TEXT NOT NULL,
        git TEXT NOT NULL,
        options TEXT NOT NULL,
        versions TEXT NOT NULL,
        result BLOB NOT NULL
    );
    CREATE INDEX runs_by_time ON runs (started);
    CREATE TABLE models (
        run TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        unit TEXT,
        ticks INTEGER,
        ram_bytes INTEGER,
        flash_bytes INTEGER,
        PRIMARY KEY (run, name)
    ) WITHOUT ROWID;
    CREATE INDEX models_by_digest ON models (sha256);
    CREATE INDEX models_by_name ON models (name);
    """,
)
VERSION = len(_MIGRATIONS)


def open_database(path: Path) -> sqlite3.Connection:
    """The database, made or brought to today's version if necessary.

    Raises UtvmError if a newer version of utvm wrote it, and sqlite3.Error or OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        if _version(database) == 0:
            # Only an empty database can get these.
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The rollback journal, SQLite's default: a write-ahead log needs memory that processes
        # share, which those on several hosts with one home folder do not have.
        database.execute("PRAGMA foreign_keys = ON")
        _migrate(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    """Each step is one transaction: a process that dies leaves a whole version."""
    while (version := _version(database)) != VERSION:
        if version > VERSION:
            raise UtvmError(
                f"{path} was written by a newer utvm (version {version} of the database; this utvm "
                f"knows up to {VERSION}); upgrade utvm, or name another file in UTVM_RUNS"
            )
        database.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster.
            if _version(database) == version:
                for statement in _MIGRATIONS[version].split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {version + 1}")
            database.execute("COMMIT")
        except BaseException:
            # SQLite itself has rolled back where the disk was full.
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
