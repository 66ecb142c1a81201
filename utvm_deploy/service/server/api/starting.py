"""Checks what somebody wants to run, and makes its jobs: all of them, or none."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import board_names
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.inputs import checked_options
from utvm_deploy.service.server.jobs.uploads import check_allowed
from utvm_deploy.service.server.jobs.verbs import Verb, verb_of
from utvm_deploy.service.server.store.facts import QUEUED, Job, Model
from utvm_deploy.service.server.store.refusals import Busy, Conflict, NotFound

#: In one request.
MOST_MODELS, MOST_BOARDS, MOST_OPTIONS = 16, 32, 32
#: Jobs that wait, in all.
MOST_WAITING = 20_000
_KEY_BYTES = 6


@dataclass(frozen=True)
class Wanted:
    """A verb for models on one or several boards."""

    verb: str
    models: Sequence[str]  # digests
    boards: Sequence[str] = ()
    options: Mapping[str, Any] | None = None


def start_jobs(parts: Parts, wanted: Wanted, idempotency_key: str = "") -> list[Job]:
    """A job for each board.

    The same ``idempotency_key`` gives the same jobs again, for a client that missed an answer.
    Raises UsageError, UploadRefused, NotFound, Conflict, Busy or NoRoom; then nothing was started.
    """
    return start_all(parts, [wanted], idempotency_key)


def start_all(parts: Parts, wanted: Sequence[Wanted], idempotency_key: str = "") -> list[Job]:
    """The jobs of several verbs, all or none, as ``start_jobs`` does it."""
    request = idempotency_key or secrets.token_hex(_KEY_BYTES)
    made = [job for one in wanted for job in _jobs(parts, one, request)]
    waiting = sum(states[QUEUED] for states in parts.database.board_counts((QUEUED,)).values())
    if waiting + len(made) > MOST_WAITING:
        raise Busy(f"{waiting:,} jobs wait already; start yours when some of those have ended")
    parts.files.make_room()
    jobs = parts.database.add_jobs(made)
    if sorted(_facts(job) for job in jobs) != sorted(_facts(job) for job in made):
        raise Conflict("another request had this Idempotency-Key; take a new one for each request")
    parts.dispatcher.wake()
    return jobs


def _jobs(parts: Parts, wanted: Wanted, request: str) -> list[Job]:
    verb = verb_of(wanted.verb)
    models = _models(parts, wanted.models)
    for model in models:
        # It may have come while the server was started with --allow-code.
        check_allowed(model.name, allow_code=parts.settings.allow_code)
    options = dict(wanted.options or {})
    made = []
    for board in _boards(verb, wanted.boards):
        settled = checked_options(parts.database, verb, models, board, options)
        key, now = secrets.token_hex(_KEY_BYTES), time.time()
        made.append(
            Job(key, verb.name, board, models, settled, state=QUEUED, created=now, request=request)
        )
    return made


def _facts(job: Job) -> str:
    """What was asked for."""
    models = [model.sha256 for model in job.models]
    return json.dumps([job.verb, job.board, models, dict(job.options)], sort_keys=True)


def _models(parts: Parts, digests: Sequence[str]) -> tuple[Model, ...]:
    if not 1 <= len(digests) <= MOST_MODELS:
        raise UsageError(f"models: {len(digests)} are named; name from 1 to {MOST_MODELS}")
    _check_once("models", digests)
    models = tuple(find_model(parts, digest) for digest in digests)
    for model in models:
        if model.is_data:
            raise UsageError(f"models: {model.name} is data; name it as the option data of a job")
    return models


def _boards(verb: Verb, boards: Sequence[str]) -> Sequence[str]:
    if not verb.has_board:
        if boards:
            raise UsageError(f"boards: {verb.name} needs no board; leave boards out")
        return [""]
    if not 1 <= len(boards) <= MOST_BOARDS:
        raise UsageError(f"boards: {len(boards)} are named; name from 1 to {MOST_BOARDS}")
    _check_once("boards", boards)
    known = set(board_names())
    for board in boards:
        if board not in known:
            raise UsageError(f"boards: there is no board {board!r}; see /api/v1/boards")
    return boards


def _check_once(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise UsageError(f"{what}: {max(names, key=list(names).count)!r} is named twice")


def find_model(parts: Parts, digest: str) -> Model:
    """The model with this digest. Raises NotFound."""
    model = parts.database.model(digest)
    if model is None:
        raise NotFound(f"there is no model {digest!r}; upload it first")
    return model


def find_job(parts: Parts, key: str) -> Job:
    """The job with this key. Raises NotFound."""
    job = parts.database.job(key)
    if job is None:
        raise NotFound(f"there is no job {key!r}; it may have been removed")
    return job
