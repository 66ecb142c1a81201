"""The server's database: models, jobs and the names of their files.

    with Database(data / "service.sqlite") as database:
        database.add_job(job)
        for job in database.jobs(state="queued"):
            ...

Threads may share it. A change is in it whole, or not at all.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm_deploy.base.database import open_database, transaction
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.service.facts import Job, JobFile, Model, Progress
from utvm_deploy.service.schema import MIGRATIONS

_JOB_COLUMNS = (
    "key, verb, board, options, state, created, started, finished, attempt, exit_code, reason, "
    "worker, what, done, total, run"
)
#: Columns that ``change_job`` may set.
_CHANGING = frozenset(
    {"state", "started", "finished", "attempt", "exit_code", "reason", "worker"}
    | {"what", "done", "total", "run"}
)


class Database:
    """A context manager. All methods raise UtvmError if the database cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection

    def __enter__(self) -> Database:
        with self._told():
            self._connection = open_database(
                self.path, MIGRATIONS, advice="name another folder with --data", write_ahead=True
            )
            # A power cut may not lose what a client was told is stored.
            self._connection.execute("PRAGMA synchronous = FULL")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._connection.close()

    # Models.

    def add_model(self, model: Model) -> None:
        """Keep a model; of one that is there already, the name changes."""
        with self._changing() as connection:
            connection.execute(
                "INSERT INTO models VALUES (?, ?, ?, ?) "
                "ON CONFLICT (sha256) DO UPDATE SET name = excluded.name",
                (model.sha256, model.name, model.size, model.uploaded),
            )

    def model(self, sha256: str) -> Model | None:
        """The model with this digest."""
        rows = self._rows("SELECT * FROM models WHERE sha256 = ?", sha256)
        return Model(*rows[0]) if rows else None

    def models(self, *, most: int = 100, skip: int = 0) -> list[Model]:
        """Models, the newest first."""
        sql = "SELECT * FROM models ORDER BY uploaded DESC LIMIT ? OFFSET ?"
        return [Model(*row) for row in self._rows(sql, most, skip)]

    # Jobs.

    def add_job(self, job: Job) -> None:
        """Keep a new job; its models must be there."""
        with self._changing() as connection:
            connection.execute(
                "INSERT INTO jobs (key, verb, board, options, state, created, reason) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.key, job.verb, job.board, json.dumps(dict(job.options)), job.state),
                    *(job.created, job.reason),
                ),
            )
            connection.executemany(
                "INSERT INTO job_models VALUES (?, ?, ?)",
                [(job.key, place, model.sha256) for place, model in enumerate(job.models)],
            )

    def change_job(self, key: str, *, at_attempt: int | None = None, **changes: Any) -> bool:
        """Set columns of a job that has not ended; returns whether there is such a job.

        With ``at_attempt`` only if the job is at that attempt: what an earlier one says is void.
        """
        unknown = changes.keys() - _CHANGING
        assert not unknown, f"no such columns: {unknown}"
        sets = ", ".join(f"{column} = ?" for column in changes)
        where = "key = ? AND state IN ('queued', 'running')"
        values = [*changes.values(), key]
        if at_attempt is not None:
            where += " AND attempt = ?"
            values.append(at_attempt)
        with self._changing() as connection:
            return connection.execute(f"UPDATE jobs SET {sets} WHERE {where}", values).rowcount > 0

    def finish_job(self, key: str, attempt: int, files: Sequence[JobFile], **changes: Any) -> bool:
        """The end of a job with its files; False if it had ended or is at another attempt."""
        with self._changing() as connection:
            if not self.change_job(key, at_attempt=attempt, **changes):
                return False
            connection.executemany(
                "INSERT OR REPLACE INTO job_files VALUES (?, ?, ?, ?)",
                [(key, file.name, file.sha256, file.size) for file in files],
            )
            return True

    def job(self, key: str) -> Job | None:
        """The job with this key."""
        found = self._rows(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE key = ?", key)
        return self._job(found[0]) if found else None

    def jobs(
        self, *, state: str = "", board: str = "", model: str = "", most: int = 100, skip: int = 0
    ) -> list[Job]:
        """Jobs, the newest first. An empty word leaves its column open."""
        where, values = ["1"], list[object]()
        for column, value in (("state", state), ("board", board)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        if model:
            where.append("key IN (SELECT job FROM job_models WHERE sha256 = ?)")
            values.append(model)
        rows = self._rows(
            f"SELECT {_JOB_COLUMNS} FROM jobs WHERE {' AND '.join(where)} "
            "ORDER BY created DESC, key LIMIT ? OFFSET ?",
            *values,
            most,
            skip,
        )
        return [self._job(row) for row in rows]

    def oldest_jobs(self, state: str, most: int) -> list[Job]:
        """Jobs in a state, the oldest first."""
        rows = self._rows(
            f"SELECT {_JOB_COLUMNS} FROM jobs WHERE state = ? ORDER BY created, key LIMIT ?",
            state,
            most,
        )
        return [self._job(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        return dict(self._rows("SELECT state, count(*) FROM jobs GROUP BY state"))

    def _job(self, row: Sequence[Any]) -> Job:
        facts = dict(zip(_JOB_COLUMNS.split(", "), row, strict=True))
        key = facts["key"]
        progress = Progress(facts.pop("what"), facts.pop("done"), facts.pop("total"))
        facts["options"] = json.loads(facts["options"])
        models = self._rows(
            "SELECT models.* FROM job_models JOIN models USING (sha256) WHERE job = ? "
            "ORDER BY place",
            key,
        )
        files = self._rows(
            "SELECT name, sha256, size FROM job_files WHERE job = ? ORDER BY name", key
        )
        return Job(
            **facts,
            models=tuple(Model(*one) for one in models),
            files=tuple(JobFile(*one) for one in files),
            progress=progress,
        )

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._told(), self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._told(), self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            with transaction(self._connection):
                yield self._connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database as one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UtvmError(
                f"the server's database {self.path} cannot be used: {error}; make room, or name "
                "another folder with --data"
            ) from error
