"""The Dask tasks with which a worker measures candidates.

They carry messages of ``tuning.messages`` as bytes, and need not import TVM.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

from distributed import Worker, get_worker

from utvm_deploy import __version__
from utvm_deploy.base.errors import TuneError, UtvmError
from utvm_deploy.service.cluster.measuring.slot import MODELS_TIMEOUT_S, Slots
from utvm_deploy.service.cluster.offers import board_resource, usable_cores

#: What one batch takes of a worker's core and board: two fit, of which one is built.
HALF = 0.5
#: Tunings that a worker knows at a time.
MOST_SESSIONS = 8

_slots: weakref.WeakKeyDictionary[Worker, dict[str, Slots]] = weakref.WeakKeyDictionary()
_sessions: weakref.WeakKeyDictionary[Worker, dict[str, MeasuringSession]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


@dataclass(frozen=True)
class MeasuringSession:
    """What a worker knows of a tuning."""

    version: str  # of utvm_deploy: others do not understand ``content``
    board: str
    key: str  # of this tuning
    content: bytes  # a packed ``Session``


class MeasuringFailed(UtvmError):
    """A worker could not measure; another one may."""

    def __init__(self, worker: str, text: str) -> None:
        super().__init__(worker, text)
        self.worker = worker
        self.text = text

    def __str__(self) -> str:
        return self.text


def open_session(session: MeasuringSession) -> bytes:
    """Start a process for the session; the packed ``Setting`` with which it measures."""
    worker = get_worker()
    try:
        _keep(worker, session)
        with _slots_of(worker, session).one(session.key, session.content) as slot:
            return slot.opened()
    except UtvmError as error:
        raise MeasuringFailed(worker.address, str(error)) from None


def measure_batch(key: str, batch: bytes) -> tuple[str, bytes]:
    """This worker's address, and the packed ``Measured``; only after ``open_session``."""
    worker = get_worker()
    try:
        session = _session(worker, key)
        with _slots_of(worker, session).one(key, session.content) as slot:
            return worker.address, slot.measure(batch)
    except UtvmError as error:
        raise MeasuringFailed(worker.address, str(error)) from None


def run_whole_models(key: str, models: bytes) -> bytes:
    """The packed ``RanWhole``; only after ``open_session``."""
    worker = get_worker()
    try:
        session = _session(worker, key)
        with _slots_of(worker, session).one(key, session.content, models) as slot:
            return slot.opened(MODELS_TIMEOUT_S)
    except UtvmError as error:
        raise MeasuringFailed(worker.address, str(error)) from None


def end_session(board: str, key: str, dask_worker: Worker) -> None:
    """End the processes of a tuning; runs in the worker's event loop, and so must not wait."""
    with _lock:
        _sessions.get(dask_worker, {}).pop(key, None)
        slots = _slots.get(dask_worker, {}).get(board)
    if slots is not None:
        threading.Thread(target=slots.close, args=(key,), daemon=True).start()


def _keep(worker: Worker, session: MeasuringSession) -> None:
    if session.version != __version__:
        raise TuneError(f"it has version {__version__} of utvm_deploy, not {session.version}")
    with _lock:
        sessions = _sessions.setdefault(worker, {})
        sessions[session.key] = session
        # Of tunings that were killed, and so did not end theirs.
        for key in list(sessions)[:-MOST_SESSIONS]:
            del sessions[key]


def _session(worker: Worker, key: str) -> MeasuringSession:
    with _lock:
        session = _sessions.get(worker, {}).get(key)
    if session is None:
        raise TuneError("it was not asked for this tuning, or for too many others since")
    return session


def _slots_of(worker: Worker, session: MeasuringSession) -> Slots:
    with _lock:
        boards = _slots.setdefault(worker, {})
        if session.board not in boards:
            count = int(worker.state.total_resources.get(board_resource(session.board), 1))
            jobs = max(1, usable_cores() // count)
            boards[session.board] = Slots(session.board, count, jobs)
        return boards[session.board]
