"""Stores how jobs ended: their files, their run, and then the row that says so.

What cannot be stored because the disk is full is kept in memory and tried again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.cluster.job import Outcome
from utvm_deploy.service.server.jobs.inputs import lines_so_far
from utvm_deploy.service.server.jobs.options import RESULT
from utvm_deploy.service.server.jobs.verbs import verb_of
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import CANCELED, DONE, FAILED, Job, JobFile
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.live import EVENTS, FOLLOWED, LOG, Live
from utvm_deploy.service.server.store.refusals import NoRoom

log = logging.getLogger(__name__)

LOG_FILE, EVENTS_FILE = "log.txt", "events.jsonl"
#: How long results wait for room on the server's disk.
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    key: str
    attempt: int
    outcome: Outcome | None  # None if no worker says it
    reason: str
    since: float  # by the monotonic clock
    earlier_log: bytes = b""  # of the attempts before
    #: The row says that it was canceled; these files, and what is live, must still be added.
    canceled: Mapping[str, bytes] | None = None

    @property
    def is_late(self) -> bool:
        """Whether it has waited for room for long enough."""
        return time.monotonic() - self.since > _PATIENCE_S


class Endings:
    """Those that are not stored yet."""

    def __init__(self, database: Database, files: Files, live: Live) -> None:
        self._database = database
        self._files = files
        self._live = live
        self._waiting: dict[str, Ending] = {}
        self._said: set[str] = set()  # the jobs that the server's output names as waiting

    @property
    def keys(self) -> frozenset[str]:
        """The jobs whose ending waits for room on the disk."""
        return frozenset(self._waiting)

    def add(self, key: str, attempt: int, outcome: Outcome, earlier_log: bytes = b"") -> None:
        """Store how a job ended, now or later."""
        self._waiting[key] = Ending(key, attempt, outcome, "", time.monotonic(), earlier_log)
        self.store()

    def add_failure(self, key: str, attempt: int, reason: str) -> None:
        """Store, now or later, that a job failed without an outcome."""
        self._waiting[key] = Ending(key, attempt, None, reason, time.monotonic())
        self.store()

    def add_canceled(self, key: str, made: Mapping[str, bytes]) -> None:
        """Store what a canceled job made before, now or later."""
        self._waiting[key] = Ending(key, 0, None, "", time.monotonic(), canceled=made)
        self.store()

    def recover(self) -> None:
        """Store what canceled jobs made whose server was killed before it did that."""
        for key in self._live.jobs():
            job = self._database.job(key)
            # What is stored of a job has at least its log.
            if job is not None and job.state == CANCELED and not job.files:
                self.add_canceled(key, {})

    def store(self) -> None:
        """Try to store what waits."""
        for key, ending in list(self._waiting.items()):
            try:
                with self._files.holding():
                    self._store(ending)
            except (UtvmError, OSError) as error:
                # It is tried every second, which fills no log.
                if key not in self._said:
                    self._said.add(key)
                    log.warning("the end of job %s is not stored yet: %s", key, error)
                continue
            del self._waiting[key]
            self._said.discard(key)
            self._live.end(key)

    def _store(self, ending: Ending) -> None:
        outcome = ending.outcome
        job = self._database.job(ending.key)
        if job is None:
            return
        if ending.canceled is not None:
            if not ending.is_late:
                self._database.queue.add_files(job.key, self._partial(job, ending.canceled))
            return
        if job.has_ended or job.attempt != ending.attempt:
            return
        changes: dict[str, Any] = {"state": FAILED, "reason": ending.reason}
        try:
            if outcome is None:
                kept = self._partial(job)
            else:
                kept = self._whole(job, outcome, ending.earlier_log)
                changes = _judged(outcome)
        except (UtvmError, OSError) as error:
            # There may be room again soon.
            if isinstance(error, (NoRoom, OSError)) and not ending.is_late:
                raise
            kept, changes["reason"] = [], f"the results could not be stored: {error}"
        if outcome is not None and outcome.runs:
            try:
                changes["run"] = _keep_run(job.key, outcome.runs)
            except (UtvmError, OSError) as error:
                log.warning("the run of job %s is not kept: %s", job.key, error)
        self._database.finish_job(ending.key, ending.attempt, kept, finished=time.time(), **changes)

    def _whole(self, job: Job, outcome: Outcome, earlier_log: bytes) -> list[JobFile]:
        # A reader of the growing log continues in this file at the same position.
        whole_log = earlier_log + outcome.log or self._live.read(job.key, LOG)
        return self._stored(
            {
                **outcome.files,
                RESULT: outcome.result,
                LOG_FILE: whole_log,
                EVENTS_FILE: self._live.read(job.key, EVENTS),
            }
        )

    def _partial(self, job: Job, made: Mapping[str, bytes] = {}) -> list[JobFile]:
        verb = verb_of(job.verb)
        contents = {
            **made,
            LOG_FILE: self._live.read(job.key, LOG),
            EVENTS_FILE: self._live.read(job.key, EVENTS),
        }
        followed = self._live.read(job.key, FOLLOWED)
        if verb.followed and followed:
            contents[verb.followed] = lines_so_far(job, self._files, followed)
        return self._stored(contents)

    def _stored(self, contents: Mapping[str, bytes]) -> list[JobFile]:
        return [
            JobFile(name, self._files.add(content), len(content))
            for name, content in contents.items()
            if content or name in (RESULT, LOG_FILE)
        ]


def _judged(outcome: Outcome) -> dict[str, Any]:
    """The columns of a job that ran to its end."""
    changes = {"exit_code": outcome.exit_code, "worker": outcome.worker}
    if outcome.exit_code == 0 and not outcome.reason:
        return {**changes, "state": DONE, "reason": ""}
    return {**changes, "state": FAILED, "reason": outcome.reason or _reason(outcome)}


def _reason(outcome: Outcome) -> str:
    """Why the verb failed: its error, or what ended it."""
    with contextlib.suppress(ValueError):
        result = json.loads(outcome.result)
        if isinstance(result, dict) and "error" in result:
            return str(result["error"])
    if outcome.exit_code < 0:
        return f"signal {-outcome.exit_code} ended it"
    return f"it ended with status {outcome.exit_code}; the log says more"


def _keep_run(job: str, runs: bytes) -> str:
    """Copy the job's run into this computer's store; returns its key.

    It gets the key of the job: if the server is killed here, the next attempt's run is the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        path.write_bytes(runs)
        with RunStore(path) as store:
            found = store.find()
            if not found:
                return ""
            run = replace(store.get(found[0].key), key=job)
    with RunStore(runs_file()) as store:
        store.add(run)
    return job
