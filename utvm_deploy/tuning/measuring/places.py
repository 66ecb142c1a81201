"""What the search needs from where candidates are measured: one device, or several.

``Place`` (``tuning/measuring/place.py``) is a device of this computer. ``service.cluster`` has one
for many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

from utvm_deploy.boards.board import Board
from utvm_deploy.records import Measurement, Record, Setting, now
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.workload import Work

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """A candidate of a kernel, to be measured."""

    work: Work
    candidate: Candidate


@dataclass(frozen=True)
class Outcome:
    """What became of a trial."""

    measurement: Measurement
    # The digest of the candidate's C, its bytes of code and of scratch.
    code: str
    code_bytes: int = 0
    scratch_bytes: int = 0


def recorded(trial: Trial, outcome: Outcome, setting: Setting, board: str) -> Record:
    """The record of an outcome on a board."""
    measurement = outcome.measurement
    return Record(
        trial.work.kernel,
        setting,
        trial.candidate,
        replace(measurement, detail=measurement.detail[:200]),
        board,
        trial.candidate == trial.work.default,
        outcome.code,
        outcome.code_bytes,
        outcome.scratch_bytes,
        now(),
    )


#: One for each trial of a batch; None if the trial did not run.
Outcomes: TypeAlias = Sequence[Outcome | None]


class Places(Protocol):
    """Measures batches of trials."""

    @property
    def board(self) -> Board:
        """The board that all places have."""

    @property
    def setting(self) -> Setting:
        """Under which circumstances all of them measure."""

    @property
    def slots(self) -> int:
        """How many batches are measured at the same time."""

    @property
    def flashes(self) -> bool:
        """Whether each batch is flashed, because the board's RAM executes no code."""

    @property
    def spent(self) -> Spent:
        """The seconds of all slots together."""

    def start(
        self, trials: Sequence[Trial], then: Callable[[Outcomes], T], check: Callable[[], None]
    ) -> Future[T]:
        """Measure a batch in the background; the future has what ``then`` makes of the outcomes.

        ``then`` runs as soon as the outcomes are known, for one batch at a time, in any thread.
        ``check`` is called between the steps that take this thread, and may raise.
        """

    def check(self) -> None:
        """Called regularly while batches run; raises TuneError if they cannot end any more."""

    def stop(self) -> None:
        """End batches early, with the outcomes so far. May be called in a signal's handler."""
