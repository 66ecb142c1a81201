"""Removes jobs and models that somebody does not want any more, with the files that only they had.

Rows go first: a file without a row is removed at the next start, but not the other way round.
"""

from __future__ import annotations

from utvm_deploy.service.parts import Parts


def remove_job(parts: Parts, key: str) -> bool:
    """Remove a job that has ended; False if it has not."""
    digests = parts.database.remove_jobs([key])
    parts.files.remove(digests, parts.database.is_file_used)
    return parts.database.job(key) is None


def remove_model(parts: Parts, sha256: str) -> bool:
    """Remove a model that no job has; False if one has it."""
    digests = parts.database.remove_model(sha256)
    parts.files.remove(digests, parts.database.is_file_used)
    return bool(digests)
