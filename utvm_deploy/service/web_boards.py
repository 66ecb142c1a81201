"""What pages show of boards: their facts, who has them, who waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.service.board_states import Holder, Offering
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
    count: int  # how many of it there are: how many jobs may use it at a time
    sessions: tuple[Holder, ...]
    offerings: tuple[Offering, ...]

    @property
    def is_free(self) -> bool:
        """Whether a job would start at once."""
        return len(self.running) + len(self.sessions) + self.waiting < self.count

    @property
    def state_class(self) -> str:
        """The class of its state in ``service.css``."""
        if self.is_free:
            return "free"
        return "held" if self.running or self.sessions else "queued"

    @property
    def state_text(self) -> str:
        """Its state in a word or two."""
        if self.is_free:
            return "free"
        if not self.count:
            return "no worker has it"
        return "in use" if self.running or self.sessions else "waited for"


@cache
def _board(name: str) -> Board:
    return load_board(name)


def unit_label(board: str, unit: str | None) -> str:
    """A unit of ticks as a text for people: cycles of an emulated board are modelled."""
    try:
        is_emulated = _board(board).emulator is not None
    except UtvmError:
        is_emulated = False  # a board file that is no longer here
    return f"modelled {unit}" if is_emulated and unit == "cycles" else unit or "ticks"


def boards_now(parts: Parts) -> list[BoardNow]:
    """All boards that jobs may name, those that a worker offers first."""
    running: dict[str, list[Job]] = {}
    for job in parts.database.jobs(state=RUNNING, most=_MOST_JOBS):
        if verb_of(job.verb).runs_on_board:
            running.setdefault(job.board, []).append(job)
    found = []
    for state in parts.boards.states():
        if not state.core:
            continue  # only a worker knows it, or a file of the user's cannot be read
        held = tuple(running.get(state.name, ()))
        sessions = tuple(one for one in state.holders if one.who)
        facts = state.name, state.description, state.core, held, state.queued, state.count
        found.append(BoardNow(*facts, sessions, state.offerings))
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
        "now": now,
        "queued": database.oldest_jobs(QUEUED, _LISTED, board=name),
        "recent": [job for job in database.jobs(board=name, most=_LISTED) if job.has_ended],
    }
