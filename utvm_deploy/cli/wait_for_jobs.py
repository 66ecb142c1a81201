"""Waits for jobs of a server, and says what became of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from utvm_deploy.base.errors import ServerError
from utvm_deploy.base.progress import Progress
from utvm_deploy.cli.output import PLAIN_PROGRESS_INTERVAL_S, Output
from utvm_deploy.cli.server_arguments import RESULT, label
from utvm_deploy.service.client.api import Server
from utvm_deploy.service.client.download import content
from utvm_deploy.service.client.facts import RemoteJob

#: How often the server is asked for the jobs' states: at first, and later.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.2, 2.0
#: How much of a failed job's log is shown.
_LOG_LINES = 20


@contextmanager
def going_on(jobs: Sequence[RemoteJob]) -> Iterator[None]:
    """Ctrl-C ends the waiting, and says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        key = jobs[0].key
        raise KeyboardInterrupt(
            f"the job continues: `utvm jobs {key}` shows job {key}, `utvm fetch {key}` gets its "
            f"files, `utvm jobs --cancel {key}` ends it"
        ) from None


def ended(
    server: Server, jobs: Sequence[RemoteJob], timeout_s: float, out: Output
) -> list[RemoteJob]:
    """The jobs when all have ended. ServerError after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    now = {job.key: job for job in jobs}
    pause = _FIRST_LOOK_S
    with out.progress() as progress:
        shown = Shown(progress)
        while waiting := [job for job in now.values() if not job.has_ended]:
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"job {waiting[0].key} is still {waiting[0].state} after "
                    f"{timeout_s / 60:,.0f} minutes; it continues: `utvm jobs {waiting[0].key}`"
                )
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _LONGEST_LOOK_S)
            for job in waiting:
                now[job.key] = server.job(job.key)
            if not all(job.has_ended for job in now.values()):
                shown.show(list(now.values()))
    return list(now.values())


class Shown:
    """One line about all jobs, when it changes; of several, not more often than verbs show one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last: tuple[str, int, int] = ("", 0, 0)
        self._then = 0.0

    def show(self, jobs: Sequence[RemoteJob]) -> None:
        """Show what the jobs do. A job that waits for hours is one line in a log."""
        now = time.monotonic()
        if len(jobs) == 1:
            line = (_doing(jobs[0]), jobs[0].done, jobs[0].total)
        elif now - self._then >= PLAIN_PROGRESS_INTERVAL_S:
            has_one_model = len({job.models for job in jobs}) == 1
            names = [(has_one_model and job.board) or label(job) for job in jobs]
            states = [f"{name}: {_doing(job)}" for name, job in zip(names, jobs, strict=True)]
            line = ("; ".join(states), 0, 1)
        else:
            return
        if line != self._last:
            self._last, self._then = line, now
            self._progress(*line)


def _doing(job: RemoteJob) -> str:
    if job.state != "running":
        return f"{job.state}, {job.reason}" if job.reason else job.state
    return job.what or job.state


def told(server: Server, job: RemoteJob, out: Output) -> Any:
    """Say how a job ended; its result, if it has one."""
    names = [file.name for file in job.files]
    if job.state == "done":
        out.line(f"{label(job)}: done")
    else:
        out.line(f"{label(job)}: {job.state}: {job.reason or 'no reason is known'}")
        for line in server.log(job.key).split("\n")[-_LOG_LINES:]:
            out.line(f"  {line}")
    if RESULT not in names:
        return None
    try:
        return json.loads(content(server, job, RESULT))
    except (ValueError, RecursionError):
        return None
