"""What pages show of boards: their facts, who has them, who waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.service.facts import QUEUED, RUNNING, Job
from utvm_deploy.service.parts import Parts
from utvm_deploy.service.verbs import verb_of

#: Running jobs that are looked at to say who has a board, and jobs of a list.
_MOST_JOBS = 500
_LISTED = 20


@dataclass(frozen=True)
class BoardNow:
    """A kind of board, and what happens with it."""

    name: str
    description: str
    core: str
    running: tuple[Job, ...]
    waiting: int
    count: int | None  # how many of it there are; None if nobody said

    @property
    def is_free(self) -> bool:
        """Whether a job would start at once."""
        if self.count is None:
            return not self.running and not self.waiting
        return len(self.running) + self.waiting < self.count

    @property
    def state_class(self) -> str:
        """The class of its state in ``service.css``."""
        if self.is_free:
            return "free"
        return "held" if self.running else "queued"

    @property
    def state_text(self) -> str:
        """Its state in a word or two."""
        if self.is_free:
            return "free"
        return "in use" if self.running else "waited for"


@cache
def _board(name: str) -> Board:
    return load_board(name)


def boards_now(parts: Parts) -> list[BoardNow]:
    """All boards that jobs may name."""
    running: dict[str, list[Job]] = {}
    for job in parts.database.jobs(state=RUNNING, most=_MOST_JOBS):
        if verb_of(job.verb).runs_on_board:
            running.setdefault(job.board, []).append(job)
    counts = parts.database.board_counts((QUEUED,))
    found = []
    for name in board_names():
        try:
            board = _board(name)
        except UtvmError:
            continue  # a file of the user's that cannot be read
        held, waiting = tuple(running.get(name, ())), counts.get(name, {}).get(QUEUED, 0)
        found.append(BoardNow(name, board.description, board.cpu.core, held, waiting, None))
    return found


def board_values(parts: Parts, name: str) -> dict[str, Any]:
    """What ``board.html`` shows. Raises UtvmError if no board is called so."""
    board = _board(name)
    database = parts.database
    (now,) = (one for one in boards_now(parts) if one.name == name)
    timer = board.project.timer
    unit = "nanoseconds" if timer is None else timer.unit
    return {
        "board": board,
        "time": "modelled cycles, or instructions" if board.has_cycle_model else unit,
        "workers": [],
        "now": now,
        "queued": database.oldest_jobs(QUEUED, _LISTED, board=name),
        "recent": [job for job in database.jobs(board=name, most=_LISTED) if job.has_ended],
    }
