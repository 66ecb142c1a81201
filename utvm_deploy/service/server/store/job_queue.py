"""What the dispatcher asks the server's database: which jobs wait, and for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.service.server.store.connections import Connections
from utvm_deploy.service.server.store.facts import JobFile, Progress
from utvm_deploy.service.server.store.rows import marks


class JobQueue:
    """The queue. All methods raise UtvmError if the database cannot be used."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def waiting(self) -> list[tuple[str, str]]:
        """The boards and verbs of queued jobs, without repetition."""
        rows = self._connections.rows(
            "SELECT DISTINCT board, verb FROM jobs INDEXED BY jobs_queued WHERE state = 'queued'"
        )
        return [(board, verb) for board, verb in rows]

    def oldest(self, board: str | None, verbs: Sequence[str], most: int) -> list[str]:
        """Keys of queued jobs with these verbs, the oldest first; None: for any board."""
        where, values = _queued(board, verbs)
        rows = self._connections.rows(
            f"SELECT key FROM jobs WHERE {where} ORDER BY created, key LIMIT ?", *values, most
        )
        return [key for (key,) in rows]

    def unended(self) -> list[str]:
        """The keys of jobs that are queued or running."""
        rows = self._connections.rows("SELECT key FROM jobs WHERE state IN ('queued', 'running')")
        return [key for (key,) in rows]

    def say(self, board: str | None, verbs: Sequence[str], reason: str) -> None:
        """Give a board's queued jobs this reason; None: those of all boards."""
        self._change_reasons(board, verbs, "reason != ?", reason, reason)

    def unsay(self, board: str | None, verbs: Sequence[str], reason: str) -> None:
        """Take this reason from a board's queued jobs; None: from those of all boards."""
        self._change_reasons(board, verbs, "reason = ?", reason, "")

    def _change_reasons(
        self, board: str | None, verbs: Sequence[str], condition: str, value: str, reason: str
    ) -> None:
        where, values = _queued(board, verbs)
        where, values = f"{where} AND {condition}", [*values, value]
        # Most often there is none, and a change locks the database.
        if self._connections.rows(f"SELECT 1 FROM jobs WHERE {where} LIMIT 1", *values):
            with self._connections.changing() as connection:
                connection.execute(f"UPDATE jobs SET reason = ? WHERE {where}", (reason, *values))

    def change_progress(self, progress: Mapping[tuple[str, int], Progress]) -> None:
        """How far running jobs are, by key and attempt."""
        with self._connections.changing() as connection:
            connection.executemany(
                "UPDATE jobs SET what = ?, done = ?, total = ? "
                "WHERE key = ? AND attempt = ? AND state = 'running'",
                [
                    (one.what, one.done, one.total, key, attempt)
                    for (key, attempt), one in progress.items()
                ],
            )

    def add_files(self, key: str, files: Sequence[JobFile]) -> None:
        """More files of a job, which may have ended; nothing if it was deleted."""
        with self._connections.changing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO job_files SELECT key, ?, ?, ? FROM jobs WHERE key = ?",
                [(file.name, file.sha256, file.size, key) for file in files],
            )


def _queued(board: str | None, verbs: Sequence[str]) -> tuple[str, list[object]]:
    """The condition for queued jobs, and its values."""
    where, values = f"state = 'queued' AND verb IN ({marks(verbs)})", list[object](verbs)
    return (where, values) if board is None else (f"{where} AND board = ?", [*values, board])
