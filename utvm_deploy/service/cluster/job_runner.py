"""Runs one job on a worker: the verb as a child process in a temporary folder.

What the child writes is forwarded as Dask events while it runs, so that a server follows it. The
child ends when the job is canceled, when its time is over, when its server ends, and when the
worker ends or dies.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker

from utvm_deploy.base import process
from utvm_deploy.base.errors import ClusterError, UtvmError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.desk_file import load_bench
from utvm_deploy.service.cluster.job import TOPIC, JobSpec, Outcome
from utvm_deploy.service.cluster.job_output import RESULT_BYTES, Log, Tail, files_of, news_of
from utvm_deploy.service.cluster.lease import held_entry

COMMAND = (sys.executable, "-m", "utvm_deploy")
#: How often the child is checked, and how often news goes to the server.
_LOOK_S, _TELL_S = 0.1, 0.5
#: How long a board of the desk may be in use by somebody who did not ask the cluster.
_LEASE_S, _LEASE_LOOK_S = 600.0, 1.0
#: How many messages carry the lines that are left when the child has ended.
_LAST_MESSAGES = 100
_RESULT, _LOG, _EVENTS, _RUNS = "result.json", "log.txt", "events.jsonl", "runs.sqlite"


#: Where jobs of this worker are, by the keys of their tasks.
_folders: dict[str, Path] = {}


class _Unwanted(Exception):
    """The job was canceled, or nobody waits for it any more."""


@dataclass(frozen=True)
class _Ended:
    exit_code: int
    reason: str = ""


@dataclass(frozen=True)
class _Run:
    """A job on its worker."""

    spec: JobSpec
    worker: Worker
    deadline: float

    def check_wanted(self) -> None:
        """Raise _Unwanted if nobody waits for the job."""
        task = self.worker.state.tasks.get(self.spec.task)
        is_ending = self.worker.status.name not in ("running", "paused")
        if is_ending or task is None or task.state == "cancelled":
            raise _Unwanted

    def tell(self, news: Mapping[str, Any]) -> None:
        """Send news of the job to the server."""
        about = {"job": self.spec.key, "attempt": self.spec.attempt}
        self.worker.log_event(TOPIC, {**about, **news})


def run_job(spec: JobSpec) -> Outcome | None:
    """The Dask task. None if the job was canceled, or nobody waits for it any more."""
    worker = get_worker()
    # Dask numbers the workers that it starts itself.
    name = worker.name if isinstance(worker.name, str) else platform.node()
    run = _Run(spec, worker, time.monotonic() + spec.time_limit_s)
    try:
        with _board(run) as chosen:
            run.tell({"started": time.time(), "worker": name})
            return _in_folder(run, name, chosen)
    except _Unwanted:
        return None
    except UtvmError as error:
        return Outcome(1, b"", b"", worker=name, reason=str(error))
    except OSError as error:
        reason = (
            f"{name} could not keep the job's files: {error.strerror or error}; make room there"
        )
        return Outcome(1, b"", b"", worker=name, reason=reason)


def made_so_far(task: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """The files that a running job of this worker has by now: verbs write them whole."""
    return files_of(_folders[task], names)[0] if task in _folders else {}


@contextlib.contextmanager
def _board(run: _Run) -> Iterator[Mapping[str, str]]:
    """Hold a board of the desk; gives the environment that chooses it."""
    spec = run.spec
    if not spec.runs_on_board or spec.board not in load_bench():
        yield {}
        return
    deadline = min(run.deadline, time.monotonic() + _LEASE_S)
    with contextlib.ExitStack() as stack:
        while True:
            run.check_wanted()
            try:
                lease = held_entry(spec.board, _LEASE_LOOK_S, f"job {spec.key}")
                entry = stack.enter_context(lease)
                break
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
        yield {"UTVM_SERIAL": entry.probe_serial} if entry.probe_serial else {}


def _in_folder(run: _Run, name: str, chosen: Mapping[str, str]) -> Outcome:
    spec = run.spec
    with TemporaryFolder("utvm-job") as folder:
        work, facts = folder / "work", folder / "facts"
        work.mkdir()
        facts.mkdir()
        for file, content in spec.files.items():
            (work / file).write_bytes(content)
        log = Log(facts / _LOG)
        log.path.touch()
        _folders[spec.task] = work
        try:
            ended = _run(run, work, facts, log, chosen)
        finally:
            del _folders[spec.task]
        result, runs = facts / _RESULT, facts / _RUNS
        files, too_large = files_of(work, spec.outputs)
        return Outcome(
            ended.exit_code,
            result.read_bytes() if result.stat().st_size <= RESULT_BYTES else b"",
            log.end(),
            files,
            runs.read_bytes() if runs.exists() else b"",
            name,
            ended.reason or too_large,
        )


def _run(run: _Run, work: Path, facts: Path, log: Log, chosen: Mapping[str, str]) -> _Ended:
    spec = run.spec
    environment = {
        **process.child_environment(),
        **chosen,
        "UTVM_EVENTS": str(facts / _EVENTS),
        "UTVM_RUNS": str(facts / _RUNS),
        "UTVM_BENCH": os.environ.get("UTVM_BENCH") or str(Path("bench.toml").absolute()),
    }
    if not Path(environment["UTVM_BENCH"]).is_file():
        environment["UTVM_BENCH"] = ""
    argv = [*COMMAND, *spec.arguments]
    tails = {"log": log.tail, "events": Tail(facts / _EVENTS, may_skip=True)}
    if spec.followed:
        # The server has what was there before.
        known = len(spec.files.get(spec.followed, b""))
        tails["lines"] = Tail(work / spec.followed, at=known)
    with (
        (facts / _RESULT).open("wb") as output,
        log.path.open("a+b") as log_file,
        process.start(argv, cwd=work, env=environment, output=output, log=log_file) as child,
    ):
        ended = _follow(run, child, facts / _RESULT, log, tails)
    for _ in range(_LAST_MESSAGES):
        if not (news := news_of(tails)):
            break
        run.tell(news)
    return ended


def _follow(
    run: _Run, child: process.Child, result: Path, log: Log, tails: Mapping[str, Tail]
) -> _Ended:
    """Wait for the child, and end it where that is due."""
    told = 0.0
    while child.is_alive():
        run.check_wanted()
        now = time.monotonic()
        if now > run.deadline:
            minutes = run.spec.time_limit_s / 60
            child.close()
            return _Ended(1, f"it took longer than its time limit of {minutes:g} minutes")
        if result.stat().st_size > RESULT_BYTES:
            child.close()
            return _Ended(1, f"it printed more than {RESULT_BYTES:,} bytes")
        if now - told > _TELL_S:
            told = now
            log.bound()
            if news := news_of(tails):
                run.tell(news)
        time.sleep(_LOOK_S)
    code = child.returncode
    assert code is not None
    return _Ended(code)
