"""Measures batches of candidates for a tuning elsewhere: ``python -m`` this module.

    stdin: what to measure ──▶ build (this thread) ──▶ measure (the device's thread) ──▶ stdout

It keeps its device, tables and expected outputs between batches, until its standard input ends. The
first request opens a session, or runs whole models.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO

from utvm_deploy.base.errors import TuneError, UtvmError
from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.device import connect
from utvm_deploy.records import ModelRecord, Record, Records
from utvm_deploy.tuning.measuring import messages
from utvm_deploy.tuning.measuring.frames import DONE, FAILED, OPEN, Opening, read_frame, write_frame
from utvm_deploy.tuning.measuring.model_runs import run_model
from utvm_deploy.tuning.measuring.place import Place, fastest_link
from utvm_deploy.tuning.measuring.places import Outcomes, Trial


class _Answers:
    """Writes answers, from any thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, number: int, kind: str, content: object) -> None:
        with self._lock:
            write_frame(self._stream, number, kind, content)

    def fail(self, number: int, error: BaseException) -> None:
        text = str(error) if isinstance(error, UtvmError) else f"{type(error).__name__}: {error}"
        self.send(number, FAILED, text)

    def ended(self, number: int, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self.fail(number, error)


@dataclass
class _KeptRecords:
    """Records in memory, in place of a file."""

    records: Records
    added: list[ModelRecord] = field(default_factory=list)

    def append(self, record: Record | ModelRecord) -> None:
        self.records.add(record)
        if isinstance(record, ModelRecord):
            self.added.append(record)


def main() -> int:
    """Answer requests until there are no more."""
    answers = _Answers(os.fdopen(os.dup(1), "wb"))
    # What libraries print must not come between answers.
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    try:
        number, opening = read_frame(requests)
        assert number == OPEN and isinstance(opening, Opening)
        if opening.models:
            answers.send(OPEN, DONE, messages.packed(_ran_whole(opening)))
        else:
            _serve(opening, requests, answers)
    except EOFError:
        return 0
    except Exception as error:
        answers.fail(OPEN, error)
        return 1
    return 0


def _board_of(session: messages.Session) -> Board:
    board = load_board(session.board)
    if messages.digest_of(board) != session.board_digest:
        raise TuneError(
            f"this computer's file of the board {session.board} differs from the one of the "
            "tuning; give both the same file (UTVM_BOARDS)"
        )
    return with_template(board, session.template)


def _serve(opening: Opening, requests: IO[bytes], answers: _Answers) -> None:
    session = messages.unpacked(opening.session)
    assert isinstance(session, messages.Session)
    board = _board_of(session)
    works = {work.kernel.key: work for work in session.works}
    with (
        connect(board, link=fastest_link(board), serial=opening.serial) as device,
        Place(device, jobs=opening.jobs, level=session.level) as place,
    ):
        answers.send(OPEN, DONE, messages.packed(place.setting))
        before = replace(place.spent)

        def measured(number: int, outcomes: Outcomes) -> None:
            nonlocal before
            now = replace(place.spent)
            spent, before = now.since(before), now
            done = messages.Measured(outcomes, dict(place.expected), spent)
            answers.send(number, DONE, messages.packed(done))

        while True:
            try:
                number, content = read_frame(requests)
            except EOFError:
                return
            assert isinstance(number, int) and isinstance(content, bytes)
            batch = messages.unpacked(content)
            assert isinstance(batch, messages.Batch)
            place.expect(batch.expected)
            trials = [Trial(works[key], candidate) for key, candidate in batch.trials]
            try:
                future = place.start(trials, partial(measured, number), lambda: None)
            except UtvmError as error:
                answers.fail(number, error)
            else:
                future.add_done_callback(partial(answers.ended, number))


def _ran_whole(opening: Opening) -> messages.RanWhole:
    session, models = messages.unpacked(opening.session), messages.unpacked(opening.models)
    assert isinstance(session, messages.Session) and isinstance(models, messages.WholeModels)
    kept = _KeptRecords(Records(models.records))
    # Over the link that other verbs take: a debugger's writes leave the caches as they are.
    with connect(_board_of(session), serial=opening.serial) as device:
        runs = tuple(
            run_model(graph, device, kept, models.setting, level=session.level)
            for graph in models.graphs
        )
    return messages.RanWhole(runs, tuple(kept.added))


if __name__ == "__main__":
    sys.exit(main())
