"""A database with many jobs, models and files, for tests of lists and of retention."""

from __future__ import annotations

from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import DONE, FAILED, QUEUED, Job, JobFile, Model

BOARDS = ("host", "mps2_an500", "mps2_an386", "mps3_an547")
VERBS = ("verify", "profile", "compile", "tune", "bundle")
#: When the first was created.
BEGIN = 1_700_000_000.0


def digest(number: int) -> str:
    """A SHA-256 of nothing."""
    return f"{number:064x}"


def key_of(number: int) -> str:
    """The key of a job."""
    return f"{number:012x}"


def fill(database: Database, jobs: int, models: int) -> None:
    """Jobs that have ended, one a second. One of ten failed; each has two files."""
    kept = [Model(digest(n), f"m{n}.tflite", 1000 + n, BEGIN + n) for n in range(models)]
    with database._connections.changing():
        for model in kept:
            database.add_model(model)
        for number in range(jobs):
            board, verb = BOARDS[number % len(BOARDS)], VERBS[number % len(VERBS)]
            created = BEGIN + number
            key = key_of(number)
            job = Job(key, verb, board, (kept[number % models],), {}, QUEUED, created)
            database.add_jobs([job])
            files = [JobFile(n, digest(number * 2 + i), 10) for i, n in enumerate(("a", "b"))]
            state = FAILED if number % 10 == 9 else DONE
            database.finish_job(key, 0, files, state=state, finished=created + 0.5)
