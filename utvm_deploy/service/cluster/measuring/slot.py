"""The processes of a worker that measure candidates: one for each board that is in use.

A process keeps its device and tables between batches. It gets two batches at a time, so that it
builds one while it measures the other. It ends with its worker, and soon after its last batch, so
that others can have the board.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO

from utvm_deploy.base import process
from utvm_deploy.base.errors import TuneError
from utvm_deploy.boards.board import load_board
from utvm_deploy.service.cluster.lease import held_entry
from utvm_deploy.tuning.measuring.frames import DONE, OPEN, Opening, read_frame, write_frame

#: Batches that one process has at a time.
LOAD = 2
#: How long a process may be without a batch before it ends.
IDLE_S = 10.0
#: How long to wait for a board of the desk that another process has.
LEASE_S = 60.0
#: How long opening a device, a batch, and the runs of whole models may take. Each candidate has a
#: separate deadline, much shorter. These are for a process that hangs.
OPEN_TIMEOUT_S = 300.0
BATCH_TIMEOUT_S = 1800.0
MODELS_TIMEOUT_S = 7200.0


@contextmanager
def _one_of_the_desk(name: str) -> Iterator[str | None]:
    """Hold a board of ``bench.toml`` and give its serial number; None for what runs here."""
    if load_board(name).runs_here:
        yield None
        return
    with held_entry(name, LEASE_S, "utvm tune --cluster") as entry:
        yield entry.probe_serial


class Slot:
    """A process that measures for the tuning ``key``."""

    def __init__(self, board: str, key: str, opening: Opening) -> None:
        self.board = board
        self.key = key
        self.load = 0
        self.idle_since = time.monotonic()
        self._opening = opening
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._answers: dict[int, Future[bytes]] = {OPEN: Future()}
        self._numbers = iter(range(OPEN + 1, sys.maxsize))
        self._requests: IO[bytes] | None = None
        self._child: process.Child | None = None
        self._ended = ""
        # The kernel ends a child with the thread that started it.
        self._thread = threading.Thread(target=self._serve, name=f"measure {board}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it takes batches."""
        return self._thread.is_alive() and not self._ended

    def opened(self, timeout_s: float = OPEN_TIMEOUT_S) -> bytes:
        """The answer to the first request."""
        return self._answer(self._answers[OPEN], timeout_s)

    def measure(self, batch: bytes) -> bytes:
        """The answer to a batch."""
        self.opened()
        answer: Future[bytes] = Future()
        with self._lock:
            if self._ended or self._requests is None:
                raise TuneError(self._ended)
            number, requests = next(self._numbers), self._requests
            self._answers[number] = answer
        # If the process has ended, the thread that reads gives the reason.
        with self._writing, suppress(OSError):
            write_frame(requests, number, batch)
        return self._answer(answer, BATCH_TIMEOUT_S)

    def close(self) -> None:
        """End the process; all who wait for it get an error."""
        self._ended = self._ended or f"measuring on {self.board} was ended"
        child = self._child
        if child is not None:
            child.close()

    def _answer(self, answer: Future[bytes], timeout_s: float) -> bytes:
        try:
            return answer.result(timeout_s)
        except FutureTimeout:
            self.close()
            raise TuneError(
                f"{self.board} gave no result within {timeout_s:.0f} s; its process was ended"
            ) from None

    def _serve(self) -> None:
        argv = [sys.executable, "-m", "utvm_deploy.tuning.measuring.measuring_process"]
        why = ""
        try:
            with (
                _one_of_the_desk(self.board) as serial,
                process.start(argv, env=process.child_environment()) as child,
            ):
                assert child.popen.stdin is not None and child.popen.stdout is not None
                requests = io.BufferedWriter(child.popen.stdin)
                answers = io.BufferedReader(child.popen.stdout)  # type: ignore[type-var]
                write_frame(requests, OPEN, replace(self._opening, serial=serial))
                with self._lock:
                    self._child, self._requests = child, requests
                if not self._ended:
                    self._read(answers)
                words = child.last_words().rpartition("\n")[2]
                why = f"the process that measures on {self.board} ended{words and ': '}{words}"
        except Exception as error:
            why = f"no process measures on {self.board}: {error}"
        finally:
            with self._lock:
                self._ended = self._ended or why
                waiting = [one for one in self._answers.values() if not one.done()]
            for one in waiting:
                one.set_exception(TuneError(self._ended))

    def _read(self, answers: IO[bytes]) -> None:
        """Give answers to those who wait, until the process ends."""
        while True:
            try:
                number, kind, content = read_frame(answers)
            except EOFError:
                return
            assert isinstance(number, int)
            with self._lock:
                answer = self._answers[number] if number == OPEN else self._answers.pop(number)
            if answer.done():
                continue
            if kind == DONE:
                assert isinstance(content, bytes)
                answer.set_result(content)
            else:
                answer.set_exception(TuneError(str(content)))


@dataclass
class Slots:
    """The processes for one board of a worker, at most ``count``."""

    board: str
    count: int
    jobs: int  # compilers of each process
    _slots: list[Slot] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    # Who waits first is served first.
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def one(self, key: str, session: bytes, models: bytes = b"") -> Iterator[Slot]:
        """A process for one more batch of a tuning, or for whole models; waits for one."""
        with self._turn, self._changed:
            deadline = time.monotonic() + BATCH_TIMEOUT_S
            while (slot := self._free(key, session, models)) is None:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TuneError(f"{self.board} was in use for {BATCH_TIMEOUT_S:.0f} s")
            slot.load += 1
        try:
            yield slot
        finally:
            with self._changed:
                slot.load -= 1
                slot.idle_since = time.monotonic()
                if (models or not slot.is_alive) and slot in self._slots:
                    self._slots.remove(slot)
                    slot.close()
                self._changed.notify_all()

    def close(self, key: str | None = None) -> None:
        """End the processes of a tuning, or all."""
        with self._changed:
            ended = [one for one in self._slots if key in (None, one.key)]
            self._slots = [one for one in self._slots if one not in ended]
            self._changed.notify_all()
        for one in ended:
            one.close()

    def _free(self, key: str, session: bytes, models: bytes) -> Slot | None:
        mine = [one for one in self._slots if one.key == key and one.is_alive]
        mine = [] if models else mine
        idle = [one for one in mine if not one.load]
        if idle:
            return idle[0]
        if len(self._slots) >= self.count:
            if any(one.load < LOAD for one in mine):
                return min(mine, key=lambda one: one.load)
            other = next((one for one in self._slots if not one.load), None)
            if other is None:
                return None
            self._slots.remove(other)
            other.close()
        return self._started(key, session, models)

    def _started(self, key: str, session: bytes, models: bytes) -> Slot:
        slot = Slot(self.board, key, Opening(session, self.jobs, models=models))
        if not self._slots:
            threading.Thread(target=self._end_idle, name="idle slots", daemon=True).start()
        self._slots.append(slot)
        return slot

    def _end_idle(self) -> None:
        """End processes that had no batch for a while; ends with the last of them."""
        while True:
            time.sleep(IDLE_S / 10)
            with self._changed:
                late = time.monotonic() - IDLE_S
                ended = [one for one in self._slots if not one.load and one.idle_since < late]
                self._slots = [one for one in self._slots if one not in ended]
                is_last = not self._slots
                self._changed.notify_all()
            for one in ended:
                one.close()
            if is_last:
                return
