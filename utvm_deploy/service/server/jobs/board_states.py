"""The boards of the cluster: how many there are, who has them, who waits, who offers them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.service.cluster.facts import WorkerFacts, worker_facts
from utvm_deploy.service.server.jobs.verbs import verb_of
from utvm_deploy.service.server.store.cached import Cached
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import QUEUED, RUNNING
from utvm_deploy.service.server.store.holders import Holders

#: Workers come and go seldom; asking for them takes the scheduler's time.
_WORKERS_S = 2.0
_MOST_RUNNING = 1000


@dataclass(frozen=True)
class Holder:
    """Who has a board: a job, or somebody's session."""

    job: str  # its key; empty for a session
    verb: str
    who: str  # of a session; empty for a job
    worker: str
    since: float | None


@dataclass(frozen=True)
class Offering:
    """A worker that offers a board."""

    worker: str
    count: int  # how many jobs may use it at a time
    last_seen: float


@dataclass(frozen=True)
class BoardState:
    """A kind of board, and what happens with it now."""

    name: str
    description: str
    core: str
    kind: str  # emulator, host or desk; empty if no worker offers it
    count: int  # how many of it there are
    free: int  # how many of it nobody has
    queued: int  # jobs that wait for it
    holders: tuple[Holder, ...]
    offerings: tuple[Offering, ...]


#: For each board its kinds and workers.
_Offers = Mapping[str, Sequence[tuple[str, Offering]]]


class Boards:
    """The boards of one server."""

    def __init__(self, cluster: Any, database: Database, holders: Holders) -> None:
        self._database = database
        self._holders = holders
        self._cluster = cluster
        self._known: _Offers = {}
        self._offered = Cached(self._look, _WORKERS_S)

    def states(self) -> list[BoardState]:
        """All boards that are known here or offered by a worker, those on offer first."""
        offered = self._offered.get()
        counts = self._database.board_counts()
        holders = self._held()
        names = {*board_names(), *offered, *filter(None, counts)}
        found = [
            _state(name, offered.get(name, ()), holders.get(name, ()), counts.get(name, {}))
            for name in names
        ]
        return sorted(found, key=lambda one: (not one.count, one.name))

    def state(self, name: str) -> BoardState | None:
        """One of them."""
        return next((one for one in self.states() if one.name == name), None)

    def _look(self) -> _Offers:
        """What workers offer. Of a cluster that is away, what it offered before."""
        with contextlib.suppress(UtvmError):
            self._known = _offers_of(worker_facts(self._cluster))
        return self._known

    def _held(self) -> Mapping[str, Sequence[Holder]]:
        found: dict[str, list[Holder]] = defaultdict(list)
        for job in self._database.jobs(state=RUNNING, most=_MOST_RUNNING):
            if verb_of(job.verb).runs_on_board:
                found[job.board].append(Holder(job.key, job.verb, "", job.worker, job.started))
        for held in self._holders.all():
            found[held.board].append(Holder("", "", held.who, "", held.since))
        return found


def _offers_of(workers: Sequence[WorkerFacts]) -> _Offers:
    found: dict[str, list[tuple[str, Offering]]] = defaultdict(list)
    for worker in workers:
        for offer in worker.offers:
            offering = Offering(worker.name, offer.count, worker.last_seen)
            found[offer.board].append((offer.kind, offering))
    return found


def _state(
    name: str,
    offered: Sequence[tuple[str, Offering]],
    holders: Sequence[Holder],
    counts: Mapping[str, int],
) -> BoardState:
    board, count = _board(name), sum(one.count for _, one in offered)
    return BoardState(
        name,
        board.description if board else "",
        board.cpu.core if board else "",
        offered[0][0] if offered else "",
        count,
        max(count - len(holders), 0),
        counts.get(QUEUED, 0),
        tuple(holders),
        tuple(one for _, one in offered),
    )


@cache
def _board(name: str) -> Board | None:
    """The facts; None of a board that only a worker knows."""
    try:
        return load_board(name)
    except UtvmError:
        return None
