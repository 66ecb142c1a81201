"""What a server sends to a worker for a job, and what it gets back."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

#: The topic of Dask's structured events that workers write and servers read.
TOPIC = "utvm-jobs"

#: How the keys of the tasks of `utvm tune --cluster` begin. They take seconds each.
MEASURING = "tune-"

#: Signals that a program does not send itself: somebody else, or the kernel for want of memory.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True)
class JobSpec:
    """A job as a worker sees it: a command line in a folder with files."""

    key: str
    attempt: int  # 1 the first time
    board: str
    #: Of ``utvm``, the verb first. Paths are relative to the job's folder.
    arguments: tuple[str, ...]
    #: Content of the files that the folder has at the start, by name.
    files: Mapping[str, bytes]
    #: Names of what is kept: files, and folders, which become NAME.zip.
    outputs: tuple[str, ...] = ()
    #: Of ``outputs``, the file whose lines reach the server while the job runs.
    followed: str = ""
    #: Whether nobody else may use the board meanwhile.
    runs_on_board: bool = False
    #: The job is ended after this time.
    time_limit_s: float = 6 * 3600.0

    @property
    def task(self) -> str:
        """The key of the Dask task."""
        return task_key(self.key, self.attempt)


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    exit_code: int  # of the verb; negative if a signal ended it
    result: bytes  # what the verb wrote to stdout: one JSON object
    log: bytes  # what it wrote to stderr; the end of it, if it is long
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: A ``runs.sqlite`` with the verb's run; empty if it kept none.
    runs: bytes = b""
    worker: str = ""
    #: One sentence, if the worker ended the job or could not keep its files.
    reason: str = ""

    @property
    def was_killed(self) -> bool:
        """Whether somebody else ended the verb, so that another attempt may succeed."""
        return not self.reason and -self.exit_code in _FROM_OUTSIDE


def task_key(key: str, attempt: int) -> str:
    """The key of the Dask task for an attempt of a job."""
    return f"job-{key}-{attempt}"
