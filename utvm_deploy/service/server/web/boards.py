"""What pages show of boards: their facts, who has them, who waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.board_states import BoardState
from utvm_deploy.service.server.store.facts import QUEUED, RUNNING, Job
from utvm_deploy.service.server.store.refusals import NotFound

#: Running jobs whose models are named, and jobs of a list.
_MOST_JOBS, _LISTED = 200, 20


@dataclass(frozen=True)
class BoardNow:
    """A kind of board as a page shows it."""

    state: BoardState
    #: Of the jobs that have it: key, and what they do.
    jobs: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of the board."""
        return self.state.name

    @property
    def is_free(self) -> bool:
        """Whether somebody can have one."""
        return self.state.free > 0

    @property
    def state_class(self) -> str:
        """The class of its state in ``service.css``."""
        if self.is_free:
            return "free"
        return "held" if self.state.count else "queued"

    @property
    def state_text(self) -> str:
        """Its state in a word or two."""
        state = self.state
        if not state.count:
            return "no worker offers it"
        if state.free and state.count > 1:
            return f"{state.free} of {state.count} free"
        return "free" if self.is_free else "in use"


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
    """All boards that jobs may name, those on offer first."""
    jobs = parts.database.jobs(state=RUNNING, most=_MOST_JOBS)
    return [BoardNow(state, _jobs_on(state, jobs)) for state in parts.boards.states()]


def _jobs_on(state: BoardState, jobs: list[Job]) -> dict[str, str]:
    titles = {job.key: f"{job.verb} {job.models[0].name}" for job in jobs}
    return {one.job: titles.get(one.job, one.verb) for one in state.holders if one.job}


def board_values(parts: Parts, name: str) -> dict[str, Any]:
    """What ``board.html`` shows. Raises NotFound if no board is called so."""
    state = parts.boards.state(name)
    if state is None:
        raise NotFound(f"there is no board {name!r}")
    database = parts.database
    running = database.jobs(state=RUNNING, board=name, most=_LISTED)
    holding = {one.job for one in state.holders}
    return {
        "now": BoardNow(state, {}),
        "running": [job for job in running if job.key in holding],
        "queued": database.oldest_jobs(QUEUED, _LISTED, board=name),
        "recent": [job for job in database.jobs(board=name, most=_LISTED) if job.has_ended],
        **_facts(name),
    }


def _facts(name: str) -> dict[str, Any]:
    """The board's file; None of a board that only a worker knows."""
    try:
        board = _board(name)
    except UtvmError:
        return {"board": None, "time": ""}
    timer = board.project.timer
    unit = "nanoseconds" if timer is None else timer.unit
    time = "modelled cycles, or instructions" if board.has_cycle_model else unit
    return {"board": board, "time": time}
