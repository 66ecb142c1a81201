"""The workers of a cluster as places where a tuning measures.

    search ──batch──▶ Dask ──▶ worker ──▶ process with a device ──▶ outcomes ──▶ records

A batch is a Dask task. Candidates are built where they are measured. Dask does a batch of a dead
worker again at another one. Each batch counts once, whichever attempt is the first to come back.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from distributed import Client
from distributed import Future as DaskFuture
from distributed.client import CancelledError
from distributed.scheduler import KilledWorker

from utvm_deploy import __version__
from utvm_deploy.base.errors import TuneError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.graph.model import Graph
from utvm_deploy.records import Setting
from utvm_deploy.service.cluster.job import MEASURING
from utvm_deploy.service.cluster.measuring.members import ANSWER_S, PATIENCE, Members, Patience
from utvm_deploy.service.cluster.measuring.tasks import (
    HALF,
    MeasuringFailed,
    MeasuringSession,
    end_session,
    measure_batch,
    open_session,
    run_whole_models,
)
from utvm_deploy.service.cluster.offers import CORE, board_resource
from utvm_deploy.tuning.measuring import messages
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.model_runs import ModelRun
from utvm_deploy.tuning.measuring.place import setting_of
from utvm_deploy.tuning.measuring.places import Outcomes, Trial
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How often a batch is tried, at different workers if there are some, before it is given up.
ATTEMPTS = 4
#: How long the result of a task may take to come here after the task is done.
GATHER_S = 60.0
#: Results that come at the same time.
_GATHERERS = 4
#: How long results that are on their way are waited for after Ctrl-C.
STOP_S = 2.0
#: Whole models are run again at another worker if one fails.
MODEL_ATTEMPTS = 2
#: How often it is looked at whether they are done.
LOOK_S = 0.05


@dataclass
class _Sent:
    """A batch that is under way."""

    number: int
    content: tuple[tuple[str, Any], ...]
    finish: Callable[[Outcomes], None]
    fail: Callable[[BaseException], None]
    attempt: int = 0
    failures: int = 0
    workers: frozenset[str] = frozenset()
    # None until it is sent, and after an attempt failed.
    task: DaskFuture | None = None


class ClusterPlaces:
    """Measures at the workers of a cluster; see ``cluster_places``."""

    flashes = False

    def __init__(
        self,
        client: Client,
        board: Board,
        works: Sequence[Work],
        level: str,
        tell: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self.board = board
        self.spent = Spent()
        self.flashes = not board.main_ram.executable
        self._client = client
        self._tell = tell
        # Unlike the session's content, different for the same tuning done again.
        self._key = f"{MEASURING}{secrets.token_hex(6)}"
        content = messages.packed(messages.session_of(board, works, level))
        session = MeasuringSession(__version__, board.name, self._key, content)
        self._session = session
        # A task, because Dask can make its result again if the worker that has it dies. Only the
        # question to each worker depends on it: Dask sends a task to where what it needs is.
        self._session_task = client.submit(_same, session, key=f"{self._key}-session", pure=False)
        self._board = {CORE: HALF, board_resource(board.name): HALF}
        here = _setting_here(board, level)
        self.members = Members(client, board.name, self._ask, tell, here, patience)
        self._numbers = itertools.count()
        self._asked = itertools.count()
        self._lock = threading.RLock()
        self._batches: dict[int, _Sent] = {}
        self._expected: dict[str, int] = {}
        self._gatherers = ThreadPoolExecutor(_GATHERERS, thread_name_prefix="gather")
        self._gathering: set[Future[None]] = set()
        self._stopping = threading.Event()

    def close(self) -> None:
        """Forget all batches, and end the processes that measured."""
        self._cancel()
        self._gatherers.shutdown(wait=True)
        if self._client.status != "running":
            return
        # In a thread, because a worker may not answer. Processes without batches end by themselves.
        ending = threading.Thread(target=self._end_session, name="end session", daemon=True)
        ending.start()
        ending.join(ANSWER_S)

    def _end_session(self) -> None:
        with suppress(Exception):
            self._client.run(end_session, self._session.board, self._key, on_error="ignore")

    @property
    def setting(self) -> Setting:
        """With which all workers measure."""
        return self.members.setting

    @property
    def slots(self) -> int:
        """How many boards they have; at least one, for which it is worth waiting."""
        return max(self.members.slots, 1)

    def start(
        self, trials: Sequence[Trial], then: Callable[[Outcomes], T], check: Callable[[], None]
    ) -> Future[T]:
        """Send a batch to the workers."""
        check()
        future: Future[T] = Future()

        def finish(outcomes: Outcomes) -> None:
            try:
                future.set_result(then(outcomes))
            except Exception as error:
                future.set_exception(error)

        content = tuple((trial.work.kernel.key, trial.candidate) for trial in trials)
        with self._lock:
            batch = _Sent(next(self._numbers), content, finish, future.set_exception)
            self._batches[batch.number] = batch
            self._send(batch)
        return future

    def check(self) -> None:
        """Send again what has no worker any more; TuneError if there is none at all."""
        if self._stopping.is_set():
            return
        self.members.check()
        present = self.members.addresses
        with self._lock:
            for batch in list(self._batches.values()):
                if batch.task is not None and batch.workers.isdisjoint(present):
                    batch.task.cancel()
                    batch.task = None
                if batch.task is None:
                    self._send(batch)

    def stop(self) -> None:
        """Take what has come, and end the rest."""
        if not self._stopping.is_set():
            self._stopping.set()
            # Not in a signal's handler, which may have interrupted who has the lock.
            threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def run_whole(self, graphs: Sequence[Graph], file: RecordsFile) -> list[ModelRun]:
        """Run models with the records and without them at one worker, and keep the records."""
        models = messages.WholeModels(tuple(graphs), tuple(file.records), self.setting)
        content = messages.packed(models)
        for attempt in range(1, MODEL_ATTEMPTS + 1):
            try:
                ran = self._ran_whole(content, attempt)
            except MeasuringFailed as error:
                if attempt == MODEL_ATTEMPTS:
                    raise TuneError(f"whole models did not run at a worker: {error}") from error
                self._tell(f"whole models are run again: {error}")
                continue
            file.extend(ran.records)
            return list(ran.runs)
        raise AssertionError

    def _ran_whole(self, content: bytes, attempt: int) -> messages.RanWhole:
        """One attempt; MeasuringFailed if the worker fails or is lost."""
        workers = self.members.addresses
        while not workers:
            self.members.check()
            time.sleep(LOOK_S)
            workers = self.members.addresses
        task = self._client.submit(
            run_whole_models,
            self._key,
            content,
            key=f"{self._key}-models-{attempt}",
            resources={CORE: 1, board_resource(self.board.name): 1},
            workers=sorted(workers),
            pure=False,
        )
        try:
            while not task.done():
                self.members.check()
                # A worker that comes back has another address, and Dask would wait for the old one.
                if workers.isdisjoint(self.members.addresses):
                    raise MeasuringFailed("", "the workers were lost")
                time.sleep(LOOK_S)
            ran = messages.unpacked(task.result(timeout=GATHER_S))
        except (KilledWorker, CancelledError) as error:
            raise MeasuringFailed("", "the workers or their scheduler were lost") from error
        finally:
            task.cancel()
        assert isinstance(ran, messages.RanWhole)
        return ran

    # Inside, with the lock.

    def _ask(self, address: str) -> DaskFuture:
        return self._client.submit(
            open_session,
            self._session_task,
            key=f"{self._key}-ask-{next(self._asked)}",
            resources=self._board,
            workers=[address],
            pure=False,
        )

    def _send(self, batch: _Sent) -> None:
        """Begin the next attempt, if there is a worker."""
        workers = self.members.addresses
        if not workers or self._stopping.is_set():
            return
        batch.attempt += 1
        batch.workers = workers
        try:
            batch.task = self._client.submit(
                measure_batch,
                self._key,
                messages.packed(messages.Batch(batch.content, dict(self._expected))),
                key=f"{self._key}-{batch.number}-{batch.attempt}",
                resources=self._board,
                workers=sorted(workers),
                pure=False,
            )
        except Exception as error:
            # The scheduler has ended: ``Members.check`` has the deadline.
            log.debug("a batch is not sent: %s", error)
            return
        attempt = batch.attempt
        batch.task.add_done_callback(lambda task: self._came(batch.number, attempt, task))

    # In threads of Dask and of the gatherers.

    def _came(self, number: int, attempt: int, task: DaskFuture) -> None:
        with self._lock, suppress(RuntimeError):  # closed meanwhile
            gathering = self._gatherers.submit(self._gather, number, attempt, task)
            self._gathering.add(gathering)
            gathering.add_done_callback(self._gathering.discard)

    def _gather(self, number: int, attempt: int, task: DaskFuture) -> None:
        batch = self._batches.get(number)
        if batch is None or batch.attempt != attempt:
            return
        try:
            if task.cancelled():
                # Its scheduler was lost. The batch did not fail.
                self._again(batch, attempt, "")
                return
            try:
                address, answer = task.result(timeout=GATHER_S)
            except MeasuringFailed as error:
                self.members.failed(error.worker, number, error.text)
                self._again(batch, attempt, error.text)
            except Exception as error:
                self._again(batch, attempt, str(error) or type(error).__name__)
            else:
                measured = messages.unpacked(answer)
                assert isinstance(measured, messages.Measured)
                self.members.succeeded(address)
                self._finish(batch, attempt, measured)
        except Exception as error:
            log.debug("a batch failed", exc_info=True)
            with self._lock:
                is_open = self._batches.pop(number, None) is not None
            if is_open:
                batch.fail(error)

    def _finish(self, batch: _Sent, attempt: int, measured: messages.Measured) -> None:
        with self._lock:
            if batch.attempt != attempt or self._batches.pop(batch.number, None) is None:
                return  # another attempt was faster
            self.spent.add(measured.spent)
            for key, checksum in measured.expected.items():
                self._expected.setdefault(key, checksum)
            batch.finish(measured.outcomes)

    def _again(self, batch: _Sent, attempt: int, why: str) -> None:
        """Have a batch sent again, or give it up."""
        with self._lock:
            if batch.attempt != attempt:
                return
            batch.task = None
            batch.failures += 1 if why else 0
            if batch.failures < ATTEMPTS or self._batches.pop(batch.number, None) is None:
                return
            batch.finish([None] * len(batch.content))
        self._tell(f"{len(batch.content)} candidates are left out after {ATTEMPTS} attempts: {why}")

    def _cancel(self) -> None:
        """End all batches that have not come back."""
        self._stopping.set()
        wait(self._gathering.copy(), STOP_S)
        with self._lock:
            left = list(self._batches.values())
            self._batches.clear()
            for batch in left:
                batch.finish([None] * len(batch.content))
        tasks = [batch.task for batch in left if batch.task is not None]
        with suppress(Exception):
            self._client.cancel(tasks)


def _same(session: MeasuringSession) -> MeasuringSession:
    return session


def _setting_here(board: Board, level: str) -> Setting | None:
    """The setting of this computer, without the unit; None if it has no compiler for the board."""
    try:
        return setting_of(board, "", level)
    except UtvmError:
        return None


@contextmanager
def cluster_places(
    client: Client,
    board: Board,
    works: Sequence[Work],
    level: str,
    *,
    tell: Callable[[str], None],
    patience: Patience = PATIENCE,
) -> Iterator[ClusterPlaces]:
    """The workers that have a board, as soon as there is one.

    ``tell`` gets a line for each worker that is left out or gone.
    """
    places = ClusterPlaces(client, board, works, level, tell, patience)
    try:
        with places.members:
            places.members.wait()
            yield places
    finally:
        places.close()
