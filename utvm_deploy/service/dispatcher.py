"""Sends queued jobs to the cluster, and writes down what becomes of them.

The database is the queue: a job is in it before anybody is told, and its end is in it before its
task is forgotten. So a server that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cluster.job import JobSpec, Outcome
from utvm_deploy.runs.store import RunStore
from utvm_deploy.service.database import Database
from utvm_deploy.service.facts import CANCELED, DONE, FAILED, QUEUED, RUNNING, Job, JobFile
from utvm_deploy.service.files import Files
from utvm_deploy.service.verbs import command_line, verb_of

log = logging.getLogger(__name__)

#: Jobs that the cluster has at a time; the others wait in the database.
IN_FLIGHT = 64
_LOOK_S = 1.0


class Dispatcher:
    """A thread that sends jobs; a context manager."""

    def __init__(self, database: Database, files: Files, jobs: Path, client: Any) -> None:
        self._database = database
        self._files = files
        self._jobs = jobs  # a folder a job, with what came while it ran
        self._client = client
        self._futures: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._feed, name="dispatcher", daemon=True)

    def __enter__(self) -> Dispatcher:
        from utvm_deploy.cluster.jobs import follow

        follow(self._client, self._told)
        # What ran when an earlier server ended starts again.
        for job in self._database.oldest_jobs(RUNNING, -1):
            self._database.change_job(
                job.key, state=QUEUED, reason="the server was restarted while this job ran"
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._wake.set()
        self._thread.join()
        with self._lock:
            for future in self._futures.values():
                future.cancel()

    def wake(self) -> None:
        """There are new jobs."""
        self._wake.set()

    def cancel(self, key: str, reason: str) -> bool:
        """End a job; False if it had ended before."""
        now = time.time()
        is_changed = self._database.change_job(key, state=CANCELED, reason=reason, finished=now)
        with self._lock:
            future = self._futures.pop(key, None)
        if future is not None:
            future.cancel()
        self._wake.set()
        return is_changed

    def _feed(self) -> None:
        while not self._is_closing:
            with contextlib.suppress(UtvmError):
                self._send()
            self._wake.wait(_LOOK_S)
            self._wake.clear()

    def _send(self) -> None:
        with self._lock:
            room = IN_FLIGHT - len(self._futures)
        for job in self._database.oldest_jobs(QUEUED, room) if room > 0 else ():
            if job.key in self._futures:
                continue
            try:
                self._start(job)
            except (UtvmError, OSError) as error:
                self._end(job.key, job.attempt, FAILED, reason=str(error))

    def _start(self, job: Job) -> None:
        from utvm_deploy.cluster.jobs import start_job

        attempt = job.attempt + 1
        spec = self._spec(job, attempt)
        # Canceled meanwhile?
        if not self._database.change_job(job.key, at_attempt=job.attempt, attempt=attempt):
            return
        resources = {"core": 1.0}
        if verb_of(job.verb).has_board:
            resources[f"board:{job.board}"] = 1.0
        with self._lock:
            future = start_job(self._client, spec, resources)
            self._futures[job.key] = future
        future.add_done_callback(lambda done: self._done(job.key, attempt, done))

    def _spec(self, job: Job, attempt: int) -> JobSpec:
        verb = verb_of(job.verb)
        names = [model.name for model in job.models]
        files = {model.name: self._files.path(model.sha256).read_bytes() for model in job.models}
        followed = self._jobs / job.key / "followed"
        if verb.followed and followed.exists():
            files[verb.followed] = followed.read_bytes()
        arguments = command_line(verb, names, job.board, job.options)
        return JobSpec(
            *(job.key, attempt, job.board, tuple(arguments), files, verb.outputs, verb.followed)
        )

    def _told(self, news: Mapping[str, Any]) -> None:
        """In the cluster's thread: what a worker reports while a job runs."""
        key, attempt = str(news["job"]), int(news["attempt"])
        try:
            if "started" in news:
                self._database.change_job(
                    key,
                    at_attempt=attempt,
                    state=RUNNING,
                    started=float(news["started"]),
                    worker=str(news["worker"]),
                )
            folder = self._jobs / key
            folder.mkdir(parents=True, exist_ok=True)
            for kind, name in (("log", "log"), ("lines", "followed")):
                if kind in news:
                    with (folder / name).open("a", encoding="utf-8") as file:
                        file.write(news[kind])
            for event in news.get("events", ()):
                if event["event"] == "progress":
                    facts = {name: event[name] for name in ("what", "done", "total")}
                    self._database.change_job(key, **facts)
                with (folder / "events").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(event) + "\n")
        except (UtvmError, OSError, KeyError, TypeError, ValueError):
            log.warning("what a worker said of job %s is lost", key, exc_info=True)

    def _done(self, key: str, attempt: int, future: Any) -> None:
        """In a thread of the cluster's client: a task ended."""
        from utvm_deploy.cluster.jobs import outcome_of

        if self._is_closing:
            return
        outcome = outcome_of(future)
        if isinstance(outcome, str):
            self._end(key, attempt, FAILED, reason=outcome)
        elif outcome is not None:
            self._keep(key, attempt, outcome)
        with self._lock:
            self._futures.pop(key, None)
        self._wake.set()

    def _keep(self, key: str, attempt: int, outcome: Outcome) -> None:
        try:
            kept = [("result.json", outcome.result), ("log.txt", outcome.log)]
            kept += list(outcome.files.items())
            files = [JobFile(name, self._files.add(data), len(data)) for name, data in kept]
            run = self._keep_run(outcome.runs)
        except (UtvmError, OSError) as error:
            self._end(key, attempt, FAILED, reason=f"the results could not be stored: {error}")
            return
        state, reason = (DONE, "") if outcome.exit_code == 0 else (FAILED, _reason(outcome))
        changes = {"exit_code": outcome.exit_code, "run": run, "worker": outcome.worker}
        self._end(key, attempt, state, files, reason=reason, **changes)

    def _keep_run(self, runs: bytes) -> str:
        """Copy the job's run into this computer's store; returns its key."""
        if not runs:
            return ""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.sqlite"
            path.write_bytes(runs)
            with RunStore(path) as store:
                found = [store.get(run.key) for run in store.find()]
        with RunStore(runs_file()) as store:
            for run in found:
                store.add(run)
        return found[0].key if found else ""

    def _end(
        self,
        key: str,
        attempt: int,
        state: str,
        files: list[JobFile] | None = None,
        **changes: Any,
    ) -> None:
        now = time.time()
        self._database.finish_job(key, attempt, files or [], state=state, finished=now, **changes)


def _reason(outcome: Outcome) -> str:
    """Why the verb failed: its error, or what ended it."""
    with contextlib.suppress(ValueError):
        result = json.loads(outcome.result)
        if isinstance(result, dict) and "error" in result:
            return str(result["error"])
    if outcome.exit_code < 0:
        return f"signal {-outcome.exit_code} ended it"
    return f"it ended with status {outcome.exit_code}; the log says more"
