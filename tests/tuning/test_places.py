"""The tuning loop with any number of places: full of work, and each candidate recorded once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tune_cases import small_works

from utvm_deploy.base.errors import TuneError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.records import Measurement, Record, Setting, read_records
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.places import Outcome, Outcomes, Trial
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import BATCH, BATCHES_EACH, tune_on

SETTING = Setting("cortex-m7", "a compiler", "-O3", "0", "cycles")


class Doubles:
    """Places without devices: when it is waited for results, a seed says which batch is done."""

    flashes = False

    def __init__(self, board: Board, slots: int, seed: int = 0, lost_after: int = 10**9) -> None:
        self.board, self.setting, self.slots, self.spent = board, SETTING, slots, Spent()
        self.batches: list[list[Trial]] = []
        self.most = 0
        self._random = Random(seed)
        self._under_way: list[tuple[Callable[[], None], Future[Any]]] = []
        self._lost_after = lost_after
        self._is_stopped = False
        self._lock = threading.Lock()

    def start(
        self, trials: Sequence[Trial], then: Callable[[Outcomes], Any], check: Callable[[], None]
    ) -> Future[Any]:
        check()
        future: Future[Any] = Future()
        self.batches.append(list(trials))
        outcomes = [Outcome(Measurement(ticks(t.candidate), 1.0), "code", 8, 4) for t in trials]
        self._under_way.append((lambda: future.set_result(then(outcomes)), future))
        self.most = max(self.most, len(self._under_way))
        # Batches stay under way until there is room for no more.
        if len(self._under_way) == BATCHES_EACH * self.slots:
            self._end_one()
        return future

    def _end_one(self) -> None:
        at = self._random.randrange(len(self._under_way)) if self.slots > 1 else 0
        self._under_way.pop(at)[0]()

    def check(self) -> None:
        if len(self.batches) >= self._lost_after:
            raise TuneError("all places are lost")
        while self._under_way:
            self._end_one()

    def stop(self) -> None:
        self._is_stopped = True
        for _, future in self._under_way:
            future.set_result([])
        self._under_way.clear()


def ticks(candidate: Candidate) -> int:
    return 1000 + sum(candidate.label.encode())


@pytest.fixture
def works(tmp_path: Path) -> tuple[Work, ...]:
    return tuple(replace(work, free=None) for work in small_works(tmp_path, "cortex-m7"))


def tuned(works: Sequence[Work], places: Doubles, path: Path, trials: int = 10**6) -> list[Record]:
    with RecordsFile(path) as file:
        tune_on(works, places, file, trials=trials)
    return list(read_records(path))


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_candidate_is_recorded_once(
    slots: int, works: tuple[Work, ...], tmp_path: Path
) -> None:
    places = Doubles(load_board("mps2_an500"), slots, seed=slots)
    records = tuned(works, places, tmp_path / "r.jsonl")
    found = [(record.kernel.key, record.candidate) for record in records]
    assert sorted(found, key=str) == sorted(
        ((work.kernel.key, candidate) for work in works for candidate in work.candidates), key=str
    )
    assert places.most == BATCHES_EACH * slots


def test_one_place_searches_the_same_again(works: tuple[Work, ...], tmp_path: Path) -> None:
    board = load_board("mps2_an500")
    found = []
    for number in range(2):
        places = Doubles(board, 1, seed=number)
        tuned(works, places, tmp_path / f"{number}.jsonl", 25)
        found.append([[trial.candidate for trial in batch] for batch in places.batches])
    assert found[0] == found[1]


def test_the_last_batches_are_small_where_there_are_many_places(
    works: tuple[Work, ...], tmp_path: Path
) -> None:
    """Else one place works at the end, and the others wait."""
    trials = 30
    places = Doubles(load_board("mps2_an500"), 3)
    tuned(works, places, tmp_path / "many.jsonl", trials)
    sizes = [len(batch) for batch in places.batches]
    assert sum(sizes) == trials and sizes[-1] == 1 and max(sizes) <= trials / 6
    places = Doubles(load_board("mps2_an500"), 1)
    tuned(works, places, tmp_path / "one.jsonl", trials)
    assert [len(batch) for batch in places.batches] == [1, 4, BATCH, trials - BATCH - 5]


def test_lost_places_end_the_tuning_and_keep_the_records(
    works: tuple[Work, ...], tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    places = Doubles(load_board("mps2_an500"), 2, lost_after=5)
    with pytest.raises(TuneError, match="all places are lost"):
        tuned(works, places, path)
    # Of the five, one had come back.
    kept = list(read_records(path))
    assert kept and len(kept) == len({(one.kernel.key, one.candidate) for one in kept})
