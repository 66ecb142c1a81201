"""Sends queued jobs to the cluster, and stores how they end.

The database is the queue. A job is stored in it before the server confirms the job. A job's end is
stored before Dask forgets the task. So a server that was killed continues where it stopped.

A job is sent only when a worker has room for it. Dask's workers run their tasks in order, so a task
that waits for a board would delay the tasks after it.

Jobs of one board start in the order in which they came. Jobs whose verb needs no board form one
more queue. All queues take turns.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.base.errors import ClusterError, UtvmError
from utvm_deploy.service.cluster.job import Outcome, task_key
from utvm_deploy.service.server.jobs.admission import (
    Flight,
    best_worker,
    free_on,
    is_offered,
    needs_of,
)
from utvm_deploy.service.server.jobs.endings import Endings
from utvm_deploy.service.server.jobs.inputs import make_spec
from utvm_deploy.service.server.jobs.verbs import VERBS, verb_of
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import CANCELED, QUEUED, RUNNING, Job, Progress
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.live import FOLLOWED, LOG, Live

if TYPE_CHECKING:
    from utvm_deploy.service.cluster.jobs import JobClient, Room

log = logging.getLogger(__name__)

#: How often the dispatcher looks at the queue, if nobody wakes it.
_TURN_S = 1.0
#: How often it looks at the workers while no job waits: if some run, and if none does.
_LOOK_S, _IDLE_S = 5.0, 30.0
#: How often progress is written.
_PROGRESS_S = 0.5
#: A job that its worker does not start within this time is sent again: somebody else was faster.
_START_S = 120.0
#: A job that ended so often with its worker is not started again.
MOST_DEATHS = 3
#: How long running jobs may take to be put back into the queue when the server ends.
_END_S = 20.0

_RESTARTED = "the server was restarted while this job ran; it starts again"
_ENDED = "the server was ended while this job ran; it starts again with the server"


@dataclass(frozen=True)
class _Message:
    """What other threads report to the dispatcher's thread."""

    news: Mapping[str, Any] = field(default_factory=dict)
    done: tuple[str, int] | None = None
    canceled: str = ""


class Dispatcher:
    """A thread that sends jobs; a context manager."""

    def __init__(self, database: Database, files: Files, jobs: Path, client: JobClient) -> None:
        self._database = database
        self._files = files
        self._client = client
        self._live = Live(jobs)
        self._endings = Endings(database, files, self._live)
        self._flights: dict[str, Flight] = {}
        self._served: dict[str | None, float] = {}  # when a queue had its last turn
        self._sessions: list[str] = []  # the boards that sessions wait for
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._written = self._asked = 0.0
        self._thread = threading.Thread(target=self._work, name="dispatcher", daemon=True)

    def __enter__(self) -> Dispatcher:
        self.recover()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self.wake()
        self._thread.join(_END_S)

    def wake(self) -> None:
        """There are new jobs."""
        self._messages.put(_Message())

    @contextlib.contextmanager
    def leaving_room(self, board: str) -> Iterator[None]:
        """Within the block, no job takes the last room for a session, which waits for ``board``."""
        self._sessions.append(board)
        try:
            yield
        finally:
            self._sessions.remove(board)
            self.wake()

    def cancel(self, key: str, reason: str) -> bool:
        """End a job; False if it had ended before. What it made before is kept."""
        now = time.time()
        if not self._database.change_job(key, state=CANCELED, reason=reason, finished=now):
            return False
        self._messages.put(_Message(canceled=key))
        return True

    # The thread.

    def recover(self) -> None:
        """Begin where an earlier server ended."""
        self._endings.recover()
        self._live.keep_only([*self._database.queue.unended(), *self._endings.keys])
        self._put_back(_RESTARTED)
        self._follow()

    def step(self, patience_s: float) -> None:
        """Wait for news, but no longer than this, and do what is due."""
        is_woken = self._hear(_now() + patience_s)
        self._turn(is_woken)

    def leave(self) -> None:
        """Put running jobs back into the queue, and end their processes."""
        self._hear(_now())
        self._live.flush()
        for key in list(self._flights):
            self._forget(key)
        self._put_back(_ENDED)

    def _work(self) -> None:
        while not self._is_closing.is_set():
            try:
                self.step(_TURN_S)
            except (UtvmError, OSError) as error:
                log.warning("jobs wait: %s", error)
                self._is_closing.wait(_TURN_S)
            except Exception:
                # A bug with one job may not stop the others.
                log.exception("the dispatcher failed; it continues")
                self._is_closing.wait(_TURN_S)
        with contextlib.suppress(UtvmError, OSError):
            self.leave()

    def _hear(self, until: float) -> bool:
        """Take messages of other threads until one asks for a turn, but no longer than ``until``.

        Returns whether one asked for a turn.
        """
        is_due = False
        while True:
            left = 0.0 if is_due else max(0.0, min(until, self._written + _PROGRESS_S) - _now())
            try:
                message = self._messages.get(timeout=left) if left else self._messages.get_nowait()
            except queue.Empty:
                self._write_progress()
                if is_due or _now() >= until:
                    return is_due
                continue
            if message.news:
                is_due |= self._told(message.news)
                continue
            is_due = True
            if message.canceled:
                self._canceled(message.canceled)
            elif message.done is not None:
                self._done(*message.done)

    def _turn(self, is_woken: bool) -> None:
        self._live.flush()
        self._endings.store()
        self._put_back("its state was unknown to the server; it starts again")
        queues = self._queues()
        rooms = self._rooms(is_woken or bool(queues))
        try:
            is_new = self._client.renew(has_workers=None if rooms is None else bool(rooms))
        except ClusterError:
            self._lose_all()
            raise
        if is_new:
            self._lose_all()
            self._follow()
        elif rooms is not None:
            self._look_after(rooms)
            # While there is no room for results, there is none for more of them.
            if not self._endings.keys:
                self._send(queues, rooms)

    def _rooms(self, is_due: bool) -> list[Room] | None:
        """The workers; None if nobody needs to know. The scheduler logs each question."""
        from utvm_deploy.service.cluster.jobs import room

        interval = _LOOK_S if self._flights else _IDLE_S
        if not is_due and _now() - self._asked < interval:
            return None
        self._asked = _now()
        try:
            return room(self._client)
        except ClusterError:
            return []

    def _follow(self) -> None:
        from utvm_deploy.service.cluster.jobs import follow

        follow(self._client, lambda news: self._messages.put(_Message(news=news)))

    def _lose_all(self) -> None:
        for key in list(self._flights):
            self._lost(key, "the cluster's scheduler was lost; it starts again")

    def _put_back(self, reason: str) -> None:
        """Jobs that nobody runs are queued again."""
        for job in self._database.oldest_jobs(RUNNING, -1):
            if job.key not in self._flights and job.key not in self._endings.keys:
                self._database.change_job(
                    job.key, at_attempt=job.attempt, state=QUEUED, reason=reason
                )

    def _look_after(self, rooms: Iterable[Room]) -> None:
        """Find attempts whose worker has left, and attempts that a worker did not start."""
        tasks = {one.worker: one.tasks for one in rooms}
        for key, flight in list(self._flights.items()):
            if flight.worker not in tasks:
                # Its end may be on the way.
                if not flight.future.done():
                    self._lost(key, f"its worker {flight.worker_name} was lost; it starts again")
            elif not flight.is_running and _now() - flight.sent > _START_S:
                self._lost(key, "its worker did not start it; it is sent again")

    # Sending.

    def _send(self, queues: Mapping[str | None, list[str]], rooms: list[Room]) -> None:
        sessions = self._sessions.copy()  # other threads change it
        free = {one.worker: free_on(one, self._flights.values(), sessions) for one in rooms}
        waiting = sorted(queues, key=lambda board: (self._served.get(board, 0.0), board or ""))
        while waiting:
            board = waiting.pop(0)
            needs = needs_of(board)
            worker = best_worker(free, needs)
            self._say_whether_offered(board, queues[board], rooms, needs)
            if worker is None:
                continue
            # Those in flight are queued until their worker starts them.
            keys = self._database.queue.oldest(board, queues[board], 1 + len(self._flights))
            key = next((key for key in keys if key not in self._flights), None)
            job = None if key is None else self._database.job(key)
            if job is None:
                continue
            self._served[board] = _now()
            if self._start(job, needs, worker):
                for name, amount in needs.items():
                    free[worker][name] -= amount
            waiting.append(board)

    def _queues(self) -> dict[str | None, list[str]]:
        """The boards for which jobs wait, with their verbs; None: those that need no board."""
        found: dict[str | None, list[str]] = {}
        for board, verb in self._database.queue.waiting():
            if verb not in VERBS:
                self._database.queue.say(board, [verb], f"this server knows no verb {verb}")
                continue
            verbs = found.setdefault(board if verb_of(verb).runs_on_board else None, [])
            if verb not in verbs:
                verbs.append(verb)
        return found

    def _say_whether_offered(
        self, board: str | None, verbs: list[str], rooms: list[Room], needs: Mapping[str, float]
    ) -> None:
        """A job that waits for a board that nobody has says so."""
        absent = "no worker is connected now"
        if board is not None:
            absent = f"no worker offers the board {board} now"
        change = (
            self._database.queue.unsay if is_offered(rooms, needs) else self._database.queue.say
        )
        change(board, verbs, absent)

    def _start(self, job: Job, needs: Mapping[str, float], worker: str) -> bool:
        from utvm_deploy.service.cluster.jobs import start_job

        attempt = job.attempt + 1
        # Canceled meanwhile?
        if not self._database.change_job(job.key, at_attempt=job.attempt, attempt=attempt):
            return False
        try:
            followed = self._live.read(job.key, FOLLOWED)
            spec = make_spec(job, attempt, self._files, followed)
        except (UtvmError, OSError) as error:
            self._endings.add_failure(job.key, attempt, str(error))
            return False
        log_bytes = len(self._live.read(job.key, LOG))
        flight = Flight(job, attempt, needs, worker, worker, _now(), log_bytes)
        self._flights[job.key] = flight
        flight.future = start_job(self._client, spec, needs, worker)
        done = _Message(done=(job.key, attempt))
        flight.future.add_done_callback(lambda _future: self._messages.put(done))
        return True

    # Messages of other threads.

    def _told(self, news: Mapping[str, Any]) -> bool:
        """What a worker reports while a job runs; whether there may be room for another job."""
        try:
            key, attempt = str(news["job"]), int(news["attempt"])
            flight = self._flights.get(key)
            if flight is None or flight.attempt != attempt:
                return False  # an earlier attempt
            if "started" in news:
                flight.is_running = True
                flight.worker_name = str(news["worker"])
                self._database.change_job(
                    key,
                    at_attempt=attempt,
                    state=RUNNING,
                    started=float(news["started"]),
                    worker=flight.worker_name,
                )
            self._live.add_lines(key, LOG, str(news.get("log", "")))
            self._live.add_lines(key, FOLLOWED, str(news.get("lines", "")))
            events = list(news.get("events", ()))
            self._live.add_events(key, events)
            for event in events:
                if event["event"] == "progress":
                    flight.progress = _progress(event)
        except (KeyError, TypeError, ValueError, OverflowError):
            log.warning("what a worker said of a job is not understood", exc_info=True)
            return False
        return "started" in news

    def _write_progress(self) -> None:
        self._written = _now()
        changed = {
            (key, flight.attempt): flight.progress
            for key, flight in self._flights.items()
            if flight.progress is not None
        }
        if changed:
            self._database.queue.change_progress(changed)
            for flight in self._flights.values():
                flight.progress = None

    def _canceled(self, key: str) -> None:
        from utvm_deploy.service.cluster.jobs import files_so_far

        flight, made = self._flights.get(key), dict[str, bytes]()
        if flight is not None and flight.is_running:
            verb, task = verb_of(flight.job.verb), task_key(key, flight.attempt)
            names = tuple(name for name in verb.outputs if name != verb.followed)
            made = files_so_far(self._client, flight.worker, task, names)
        self._forget(key)
        self._endings.add_canceled(key, made)

    def _done(self, key: str, attempt: int) -> None:
        """A task ended."""
        from utvm_deploy.service.cluster.jobs import outcome_of

        flight = self._flights.get(key)
        if flight is None or flight.attempt != attempt:
            return
        outcome = outcome_of(flight.future)
        if outcome is None:
            self._lost(key, f"its worker {flight.worker_name} was lost; it starts again")
        elif isinstance(outcome, Outcome) and outcome.was_killed:
            signal = -outcome.exit_code
            self._lost(key, f"signal {signal} ended it on {outcome.worker}; it starts again")
        else:
            self._write_progress()
            self._forget(key)
            if isinstance(outcome, Outcome):
                earlier = self._live.read(key, LOG)[: flight.log_bytes]
                self._endings.add(key, attempt, outcome, earlier)
            else:
                self._endings.add_failure(key, attempt, outcome)

    def _lost(self, key: str, reason: str) -> None:
        """An attempt ended without an end: another one, if it was not the job's fault."""
        flight = self._flights[key]
        self._forget(key)
        if flight.is_running:
            deaths = self._live.add_death(key, reason)
            self._live.add_lines(key, LOG, f"[attempt {flight.attempt}: {reason}]\n")
            if deaths >= MOST_DEATHS:
                why = reason.partition(";")[0]
                self._endings.add_failure(
                    key, flight.attempt, f"it was lost {deaths} times; the last time: {why}"
                )
                return
        self._database.change_job(key, at_attempt=flight.attempt, state=QUEUED, reason=reason)

    def _forget(self, key: str) -> None:
        """Release the task, which ends its process if it still runs."""
        flight = self._flights.pop(key, None)
        if flight is not None and flight.future is not None:
            # What is lost already cannot be canceled.
            with contextlib.suppress(OSError, TimeoutError, RuntimeError, UtvmError):
                flight.future.cancel()


def _progress(event: Mapping[str, Any]) -> Progress:
    """Raises ValueError, among others, for what the database cannot hold."""
    what = str(event["what"]).encode("utf-8", "replace").decode()
    done, total = int(event["done"]), int(event["total"])
    if max(abs(done), abs(total)) > sys.maxsize:
        raise ValueError(f"progress of {done} of {total}")
    return Progress(what, done, total)


def _now() -> float:
    return time.monotonic()
