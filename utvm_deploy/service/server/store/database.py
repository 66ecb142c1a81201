"""The server's database: models, jobs and the names of their files.

    with Database(data / "service.sqlite") as database:
        database.add_jobs([job])
        for job in database.jobs(state="queued"):
            ...

Threads may share it. A change is in it whole, or not at all. A list takes the same few queries for
one job and for a hundred.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.service.server.store.connections import Connections
from utvm_deploy.service.server.store.facts import Job, JobFile, Model, ModelUse
from utvm_deploy.service.server.store.job_queue import JobQueue
from utvm_deploy.service.server.store.refusals import NotFound
from utvm_deploy.service.server.store.rows import (
    JOB_COLUMNS,
    MODEL_COLUMNS,
    grouped,
    job_of,
    many,
    marks,
    model_of,
    parts,
)
from utvm_deploy.service.server.store.schema import MIGRATIONS

#: Columns that ``change_job`` may set.
_CHANGING = frozenset(
    {"state", "started", "finished", "attempt", "exit_code", "reason", "worker"}
    | {"what", "done", "total", "run"}
)


class Database:
    """A context manager. All methods raise UtvmError if the database cannot be used, and NoRoom
    if the disk is full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connections = Connections(path, MIGRATIONS, advice="name another folder with --data")
        self.queue = JobQueue(self._connections)

    def __enter__(self) -> Database:
        self._connections.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.__exit__()

    # Models.

    def add_model(self, model: Model, files: Sequence[JobFile] = ()) -> None:
        """Keep a model and what was made of it.

        Of a model that is there already, all but the content may change. Jobs keep the name that
        the model had when they were made.
        """
        with self._connections.changing() as connection:
            connection.execute(
                f"INSERT INTO models ({MODEL_COLUMNS}) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (sha256) DO UPDATE SET name = excluded.name, "
                "uploaded = excluded.uploaded, facts = excluded.facts",
                (
                    *(model.sha256, model.name, model.size, model.uploaded),
                    json.dumps(asdict(model.facts) if model.facts else {}),
                ),
            )
            connection.execute("DELETE FROM model_files WHERE model = ?", (model.sha256,))
            connection.executemany(
                "INSERT INTO model_files VALUES (?, ?, ?, ?)",
                [(model.sha256, file.name, file.sha256, file.size) for file in files],
            )

    def model(self, sha256: str) -> Model | None:
        """The model with this digest."""
        rows = self._connections.rows(
            f"SELECT {MODEL_COLUMNS} FROM models WHERE sha256 = ?", sha256
        )
        return model_of(rows[0]) if rows else None

    def models(self, *, before: str = "", most: int = 100) -> list[Model]:
        """Models, the newest first; with ``before``, those that follow this digest in the list.

        Raises UsageError if there is no such model.
        """
        where, values = "", list[object]()
        if before:
            last = self.model(before)
            if last is None:
                raise UsageError(f"there is no model {before!r}; begin the list again")
            where, values = "WHERE (uploaded, sha256) < (?, ?)", [last.uploaded, before]
        rows = self._connections.rows(
            f"SELECT {MODEL_COLUMNS} FROM models {where} "
            "ORDER BY uploaded DESC, sha256 DESC LIMIT ?",
            *values,
            most,
        )
        return [model_of(row) for row in rows]

    def model_files(self, sha256: str) -> tuple[JobFile, ...]:
        """What was made of a model when it was uploaded."""
        rows = self._connections.rows(
            "SELECT name, sha256, size FROM model_files WHERE model = ? ORDER BY name", sha256
        )
        return tuple(JobFile(*row) for row in rows)

    def model_uses(self, digests: Collection[str]) -> dict[str, ModelUse]:
        """The jobs of these models; those without jobs are left out."""
        found = {}
        with self._connections.reading() as connection:
            for digest, jobs, latest in many(
                connection,
                "SELECT sha256, count(DISTINCT job), max(created) FROM job_models "
                "WHERE sha256 IN ({}) GROUP BY sha256",
                digests,
            ):
                found[digest] = ModelUse(jobs, latest)
        return found

    def count_models(self) -> int:
        """How many models there are."""
        return int(self._connections.rows("SELECT count(*) FROM models")[0][0])

    # Jobs.

    def add_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Keep new jobs, all or none. Raises NotFound if one of their models is missing.

        The data that a job's options name are its models, too, in places below 0.

        If there are jobs of the same request already, nothing is added, and those are returned. So
        a client that did not get its answer may ask again.
        """
        with self._connections.changing() as connection:
            request = jobs[0].request if jobs else ""
            # As many as were asked for at a time, and one that does not belong to them.
            if request and (earlier := self.jobs(request=request, most=len(jobs) + 1)):
                return earlier[::-1]
            for job in jobs:
                connection.execute(
                    "INSERT INTO jobs (key, verb, board, options, state, created, reason, request) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(job.key, job.verb, job.board, json.dumps(dict(job.options)), job.state),
                        *(job.created, job.reason, job.request),
                    ),
                )
                try:
                    connection.executemany(
                        "INSERT INTO job_models (job, place, sha256, name, created) "
                        "VALUES (?, ?, ?, ?, ?)",
                        [
                            (job.key, place, model.sha256, model.name, job.created)
                            for place, model in enumerate(job.models)
                        ],
                    )
                except sqlite3.IntegrityError as error:
                    names = ", ".join(model.name for model in job.models)
                    raise NotFound(f"{names} was deleted a moment ago; upload it again") from error
                connection.execute(
                    "INSERT INTO job_models (job, place, sha256, name, created) "
                    "SELECT ?1, -row_number() OVER (), sha256, name, ?2 FROM models "
                    "WHERE instr(?3, sha256)",
                    (job.key, job.created, json.dumps(dict(job.options))),
                )
        return list(jobs)

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
        with self._connections.changing() as connection:
            return connection.execute(f"UPDATE jobs SET {sets} WHERE {where}", values).rowcount > 0

    def finish_job(self, key: str, attempt: int, files: Sequence[JobFile], **changes: Any) -> bool:
        """The end of a job with its files; False if it had ended or is at another attempt."""
        with self._connections.changing() as connection:
            if not self.change_job(key, at_attempt=attempt, **changes):
                return False
            connection.executemany(
                "INSERT OR REPLACE INTO job_files VALUES (?, ?, ?, ?)",
                [(key, file.name, file.sha256, file.size) for file in files],
            )
            return True

    def job(self, key: str) -> Job | None:
        """The job with this key."""
        found = self._jobs(f"SELECT {JOB_COLUMNS} FROM jobs WHERE key = ?", key)
        return found[0] if found else None

    def jobs(
        self,
        *,
        state: str = "",
        board: str = "",
        verb: str = "",
        model: str = "",
        request: str = "",
        since: float | None = None,
        before: str = "",
        most: int = 100,
    ) -> list[Job]:
        """Jobs, the newest first. An empty word leaves its column open.

        ``since`` is the earliest time of creation. With ``before``, only the jobs that follow this
        key in the list. Raises UsageError if there is no such job.
        """
        where, values = ["1"], list[object]()
        facts = {"state": state, "board": board, "verb": verb, "request": request}
        for column, value in facts.items():
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        table, created, key = "jobs", "jobs.created", "jobs.key"
        if model:
            # In this order: most models have few jobs.
            table = "job_models CROSS JOIN jobs ON key = job"
            created, key = "job_models.created", "job_models.job"
            where.append("job_models.sha256 = ?")
            values.append(model)
        if request:
            where.append("request != ''")  # else SQLite does not use the index on requests
        if since is not None:
            where.append(f"{created} >= ?")
            values.append(since)
        if before:
            rows = self._connections.rows("SELECT created FROM jobs WHERE key = ?", before)
            if not rows:
                raise UsageError(f"there is no job {before!r}; begin the list again")
            where.append(f"({created}, {key}) < (?, ?)")
            values += [rows[0][0], before]
        columns = ", ".join(f"jobs.{name}" for name in JOB_COLUMNS.split(", "))
        return self._jobs(
            f"SELECT {columns} FROM {table} WHERE {' AND '.join(where)} "
            f"ORDER BY {created} DESC, {key} DESC LIMIT ?",
            *values,
            most,
        )

    def oldest_jobs(self, state: str, most: int, *, board: str | None = None) -> list[Job]:
        """Jobs in a state, the oldest first; of one board, or of all."""
        where, values = "state = ?", list[object]([state])
        if board is not None:
            where += " AND board = ?"
            values.append(board)
        return self._jobs(
            f"SELECT {JOB_COLUMNS} FROM jobs WHERE {where} ORDER BY created, key LIMIT ?",
            *values,
            most,
        )

    def ended_jobs(self, before: float, most: int) -> list[Job]:
        """Jobs that ended before this time, those that ended first in front."""
        return self._jobs(
            f"SELECT {JOB_COLUMNS} FROM jobs WHERE finished < ? ORDER BY finished LIMIT ?",
            before,
            most,
        )

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        rows = self._connections.rows("SELECT state, count(*) FROM jobs GROUP BY state")
        return {state: count for state, count in rows}

    def board_counts(
        self, states: Collection[str] = ("queued", "running")
    ) -> dict[str, dict[str, int]]:
        """For each board, how many jobs there are in each of these states."""
        found: dict[str, dict[str, int]] = {}
        with self._connections.reading() as connection:
            for board, state, count in many(
                connection,
                "SELECT board, state, count(*) FROM jobs WHERE state IN ({}) GROUP BY state, board",
                states,
            ):
                found.setdefault(board, {})[state] = count
        return found

    # What retention needs.

    def unused_models(self, before: float, most: int) -> list[Model]:
        """Models of no job that were uploaded before this time, the oldest first."""
        rows = self._connections.rows(
            f"SELECT {MODEL_COLUMNS} FROM models WHERE uploaded < ? AND NOT EXISTS "
            "(SELECT 1 FROM job_models WHERE job_models.sha256 = models.sha256) "
            "ORDER BY uploaded LIMIT ?",
            before,
            most,
        )
        return [model_of(row) for row in rows]

    def remove_jobs(self, keys: Collection[str]) -> set[str]:
        """Remove jobs that have ended. Returns the digests of the files that they had."""
        digests: set[str] = set()
        with self._connections.changing() as connection:
            ended = [
                row[0]
                for row in many(
                    connection,
                    "SELECT key FROM jobs WHERE key IN ({}) AND state NOT IN ('queued', 'running')",
                    keys,
                )
            ]
            digests |= {
                row[0]
                for row in many(connection, "SELECT sha256 FROM job_files WHERE job IN ({})", ended)
            }
            for part in parts(ended):
                connection.execute(f"DELETE FROM jobs WHERE key IN ({marks(part)})", part)
        return digests

    def remove_model(self, sha256: str) -> set[str]:
        """Remove a model that no job uses; otherwise nothing. Returns the digests of its files."""
        with self._connections.changing() as connection:
            files = connection.execute(
                "SELECT sha256 FROM model_files WHERE model = ?", (sha256,)
            ).fetchall()
            removed = connection.execute(
                "DELETE FROM models WHERE sha256 = ? AND NOT EXISTS "
                "(SELECT 1 FROM job_models WHERE job_models.sha256 = models.sha256)",
                (sha256,),
            ).rowcount
            return {sha256, *(row[0] for row in files)} if removed else set()

    def is_file_used(self, sha256: str) -> bool:
        """Whether a model, a job or an option of a job that has not ended needs this file."""
        found = self._connections.rows(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM models WHERE sha256 = ?1) "
            "OR EXISTS (SELECT 1 FROM model_files WHERE sha256 = ?1) "
            "OR EXISTS (SELECT 1 FROM job_files WHERE sha256 = ?1) "
            "OR EXISTS (SELECT 1 FROM jobs WHERE state IN ('queued', 'running') "
            "AND instr(options, ?1))",
            sha256,
        )
        return bool(found)

    # Logins of browsers that were ended before their time.

    def ended_logins(self, now: float) -> tuple[int, dict[str, float]]:
        """How often all were ended, and the others that were ended with when they expire."""
        ((count,),) = self._connections.rows("SELECT count(*) FROM ends_of_all_logins")
        rows = self._connections.rows(
            "SELECT login, expires FROM ended_logins WHERE expires > ?", now
        )
        return count, dict(rows)

    def end_login(self, login: str, expires: float) -> None:
        """One login is over. It is kept until it would have expired."""
        with self._connections.changing() as connection:
            connection.execute("DELETE FROM ended_logins WHERE expires < strftime('%s', 'now') + 0")
            connection.execute(
                "INSERT OR REPLACE INTO ended_logins VALUES (?, ?)", (login, expires)
            )

    def end_all_logins(self, now: float) -> None:
        """All logins so far are over."""
        with self._connections.changing() as connection:
            connection.execute("INSERT INTO ends_of_all_logins VALUES (?)", (now,))
            connection.execute("DELETE FROM ended_logins")

    def compact(self) -> None:
        """Give room that nothing uses any more back to the disk."""
        self._connections.compact()

    def _jobs(self, sql: str, *values: object) -> list[Job]:
        """The jobs of a query for ``JOB_COLUMNS``, with their models and files."""
        with self._connections.reading() as connection:
            rows = connection.execute(sql, values).fetchall()
            keys = [row[0] for row in rows]
            models = grouped(
                many(
                    connection,
                    "SELECT job, models.sha256, job_models.name, size, uploaded, facts "
                    "FROM job_models JOIN models USING (sha256) WHERE job IN ({}) AND place >= 0 "
                    "ORDER BY job, place",
                    keys,
                ),
                model_of,
            )
            files = grouped(
                many(
                    connection,
                    "SELECT job, name, sha256, size FROM job_files WHERE job IN ({}) "
                    "ORDER BY job, name",
                    keys,
                ),
                lambda row: JobFile(*row),
            )
        return [job_of(row, models.get(row[0], ()), files.get(row[0], ())) for row in rows]
