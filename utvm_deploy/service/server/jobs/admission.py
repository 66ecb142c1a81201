"""Which worker has room for a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from utvm_deploy.service.cluster.job import task_key
from utvm_deploy.service.cluster.offers import CORE, board_resource
from utvm_deploy.service.server.store.facts import Job, Progress

if TYPE_CHECKING:
    from utvm_deploy.service.cluster.jobs import Room


@dataclass
class Flight:
    """An attempt that the cluster has."""

    job: Job
    attempt: int
    needs: Mapping[str, float]
    worker: str  # its address
    worker_name: str  # its address, until it says its name
    sent: float  # by the monotonic clock
    log_bytes: int  # of the attempts before
    future: Any = None
    is_running: bool = False
    progress: Progress | None = None


def needs_of(board: str | None) -> dict[str, float]:
    """The resources of a job in a board's queue; None: of a job that needs no board."""
    needs = {CORE: 1.0}
    if board is not None:
        needs[board_resource(board)] = 1.0
    return needs


def free_on(room: Room, flights: Iterable[Flight], sessions: Iterable[str]) -> dict[str, float]:
    """What is free on a worker, less what it does not know yet: jobs sent, and sessions.

    ``sessions`` are the boards that sessions wait for.
    """
    free = dict(room.free)
    for flight in flights:
        task = task_key(flight.job.key, flight.attempt)
        if flight.worker == room.worker and not flight.is_running and task not in room.tasks:
            for name, amount in flight.needs.items():
                free[name] = free.get(name, 0.0) - amount
    for board in sessions:
        needs = needs_of(board)
        if needs.keys() <= room.total.keys():
            for name, amount in needs.items():
                free[name] -= amount
    return free


def best_worker(free: Mapping[str, Mapping[str, float]], needs: Mapping[str, float]) -> str | None:
    """The worker that has room, and of several the one with the most free cores."""
    found = [worker for worker, has in free.items() if _has(has, needs)]
    return max(found, key=lambda worker: free[worker][CORE], default=None)


def is_offered(rooms: Iterable[Room], needs: Mapping[str, float]) -> bool:
    """Whether some worker could run the job, now or later."""
    return any(_has(room.total, needs) for room in rooms)


def _has(resources: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    return all(resources.get(name, 0.0) >= amount for name, amount in needs.items())
