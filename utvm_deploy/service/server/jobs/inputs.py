"""What a job needs before it runs: options that are checked, and the content of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.service.cluster.job import JobSpec
from utvm_deploy.service.server.jobs.options import names_a_job, time_limit_s
from utvm_deploy.service.server.jobs.verbs import (
    Verb,
    command_line,
    file_names,
    given_options,
    verb_of,
)
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import Job, Model
from utvm_deploy.service.server.store.files import Files


def checked_options(
    database: Database, verb: Verb, models: Sequence[Model], board: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a new job, with the digest of a file instead of the job that made it.

    Raises UsageError if the job could not run with them.
    """
    command_line(verb, file_names(models), board, options)
    found = dict(options)
    for option, value in given_options(verb, options):
        if not option.file:
            continue
        if names_a_job(value):
            found[option.name] = _digest(database, str(value), option.member)
        elif not database.is_file_used(str(value)):
            raise UsageError(
                f"{option.name}: the server has no file with the SHA-256 {value}; give that of a "
                "file that a job made"
            )
    return found


def _digest(database: Database, key: str, name: str) -> str:
    job = database.job(key)
    if job is None:
        raise UsageError(f"there is no job {key}; give a job that made {name}, or its SHA-256")
    if found := job.file(name):
        return found.sha256
    raise UsageError(f"job {key} has no file {name}; a {job.verb} job that is {job.state} has none")


def make_spec(job: Job, attempt: int, files: Files, followed: bytes) -> JobSpec:
    """What a worker gets. ``followed``: lines that earlier attempts of the job made.

    Raises UtvmError or OSError if a file cannot be read.
    """
    verb = verb_of(job.verb)
    names = file_names(job.models)
    given = {
        name: _content(files, model.sha256) for name, model in zip(names, job.models, strict=True)
    }
    for option, value in given_options(verb, job.options):
        if option.file:
            given[option.file] = _content(files, str(value))
    if followed:
        given[verb.followed] = _with_lines(given.get(verb.followed, b""), followed)
    return JobSpec(
        job.key,
        attempt,
        job.board,
        tuple(command_line(verb, names, job.board, job.options)),
        given,
        verb.outputs,
        verb.followed,
        runs_on_board=verb.runs_on_board,
        time_limit_s=time_limit_s(job.options),
    )


def lines_so_far(job: Job, files: Files, followed: bytes) -> bytes:
    """The file that the verb grows: what it started with, and the lines that it told."""
    verb = verb_of(job.verb)
    before = b""
    for option, value in given_options(verb, job.options):
        if option.file == verb.followed:
            before = _content(files, str(value))
    return _with_lines(before, followed)


def _content(files: Files, sha256: str) -> bytes:
    try:
        return files.path(sha256).read_bytes()
    except FileNotFoundError:
        raise UtvmError(f"the server has no file {sha256} any more; upload it again") from None


def _with_lines(before: bytes, more: bytes) -> bytes:
    """``more`` after ``before``, without the lines that are in both."""
    known = set(before.splitlines())
    lines = [line for line in dict.fromkeys(more.splitlines()) if line not in known]
    return b"".join(line + b"\n" for line in (*before.splitlines(), *lines))
