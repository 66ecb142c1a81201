"""Removes jobs and models, with the files that only they had.

Rows go first: a file without a row is removed later (``Retention.sweep``), but not the other way
round.
"""

from __future__ import annotations

from collections.abc import Collection

from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.files import Files


def remove_jobs(database: Database, files: Files, keys: Collection[str]) -> None:
    """Remove those that have ended; nothing happens to the others."""
    files.remove(database.remove_jobs(keys), database.is_file_used)


def remove_model(database: Database, files: Files, sha256: str) -> bool:
    """Remove a model and what was made of it; False, and nothing happens, if a job has it."""
    digests = database.remove_model(sha256)
    files.remove(digests, database.is_file_used)
    return bool(digests)
