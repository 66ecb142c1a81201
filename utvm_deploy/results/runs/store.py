"""The runs of this computer, in a SQLite database.

    with RunStore(runs_file()) as store:
        store.add(run)
        for run in store.find(model="kws"):
            ...

Several processes may use one database. A run is in it whole, or not at all.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utvm_deploy.base.database import compact, open_database, transaction
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.results.runs.schema import MIGRATIONS

#: The database is cut back to this size: the oldest runs go first.
MOST_BYTES = 256 << 20
#: A part of a digest or a key that is this long or longer may stand for the whole.
LEAST_PREFIX = 4
#: Of a whole key.
KEY_DIGITS = 12
#: What a database that something else has written may raise.
_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, zlib.error)
_COLUMNS = "key, verb, started, seconds, exit_code, board, git, options, versions"


class RunStore:
    """The database; a context manager. All methods raise UtvmError if it cannot be used."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._database: sqlite3.Connection

    def __enter__(self) -> RunStore:
        with self._told():
            self._database = open_database(
                self.path, MIGRATIONS, advice="name another file in UTVM_RUNS"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, run: Run) -> None:
        """Keep a run, unless one with its key is there.

        The oldest runs are removed if the database becomes too large.
        """
        values = (
            *(run.key, run.verb, run.started, run.seconds, run.exit_code, run.board, run.git),
            *(_json(run.options), _json(run.versions)),
            zlib.compress(_json(run.result).encode()),
        )
        with self._told(), transaction(self._database):
            marks = ", ".join("?" * len(values))
            sql = f"INSERT OR IGNORE INTO runs VALUES ({marks})"
            if self._database.execute(sql, values).rowcount < 1:
                return
            self._database.executemany(
                "INSERT INTO models VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (run.key, m.name, m.sha256, m.unit, m.ticks, m.ram_bytes, m.flash_bytes)
                    for m in run.models
                ],
            )
        with self._told():
            self._trim()

    def has(self, key: str) -> bool:
        """Whether there is a run with this whole key."""
        with self._told():
            found = self._database.execute("SELECT 1 FROM runs WHERE key = ?", (key,))
            return found.fetchone() is not None

    def get(self, key: str) -> Run:
        """The run with this key, or whose key begins so."""
        if len(key) < LEAST_PREFIX:
            raise UtvmError(f"{key!r} is too short for a run; give {LEAST_PREFIX} digits or more")
        with self._told():
            rows = self._database.execute(
                f"SELECT {_COLUMNS}, result FROM runs WHERE substr(key, 1, ?) = ?", (len(key), key)
            ).fetchall()
        if not rows:
            raise UtvmError(f"{self.path} has no run {key}; `utvm history` lists its runs")
        if len(rows) > 1:
            raise UtvmError(f"{len(rows)} runs begin with {key}; give more digits")
        with self._told():
            result = json.loads(zlib.decompress(rows[0][-1]))
            return self._run(rows[0][:-1], dict(result))

    def find(
        self, *, model: str = "", board: str = "", verb: str = "", most: int | None = None
    ) -> list[Run]:
        """Runs, the newest first, without their results.

        ``model`` is a name, a SHA-256 or the start of one. An empty word leaves its column open.
        """
        where, values = ["1"], list[object]()
        for column, value in (("board", board), ("verb", verb)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if model:
            is_digest = len(model) >= LEAST_PREFIX
            start = " OR substr(sha256, 1, ?) = ?" if is_digest else ""
            where.append(f"key IN (SELECT run FROM models WHERE name = ?{start})")
            values += [model, *([len(model), model] if is_digest else [])]
        # A negative limit is none; SQLite knows no numbers of more than 64 bits.
        values.append(-1 if most is None else min(most, sys.maxsize))
        with self._told():
            rows = self._database.execute(
                f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(where)} "
                "ORDER BY started DESC, key LIMIT ?",
                values,
            ).fetchall()
            return [self._run(row, {}) for row in rows]

    def _run(self, row: tuple[Any, ...], result: dict[str, Any]) -> Run:
        key, verb, started, seconds, exit_code, board, git, options, versions = row
        models = self._database.execute(
            "SELECT name, sha256, unit, ticks, ram_bytes, flash_bytes FROM models WHERE run = ?",
            (key,),
        )
        figures = tuple(ModelFigures(*one) for one in models)
        facts = key, verb, float(started), float(seconds), int(exit_code), board, git
        return Run(*facts, figures, json.loads(options), json.loads(versions), result)

    def _trim(self) -> None:
        """Remove the oldest runs until the database is small enough."""
        while self._bytes() > self.most_bytes:
            removed = self._database.execute(
                "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY started LIMIT "
                "(SELECT (count(*) + 9) / 10 FROM runs) )"
            ).rowcount
            compact(self._database)
            if removed < 1:
                return

    def _bytes(self) -> int:
        pages, size = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size")
        )
        return int(pages) * int(size)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError, *_UNREADABLE) as error:
            raise UtvmError(
                f"the runs in {self.path} cannot be used: {error}; name another file in UTVM_RUNS"
            ) from error


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
