"""Jobs on a cluster, from the server's side: where there is room, start, follow.

An attempt of a job is bound to one worker. If that worker dies, Dask does not repeat the attempt
elsewhere: the server makes a new one, which starts with what the dead one had told.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from distributed import Future

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster.job import MEASURING, TOPIC, JobSpec, Outcome
from utvm_deploy.service.cluster.job_runner import made_so_far, run_job
from utvm_deploy.service.cluster.offers import CORE

#: How long an outcome may take from the worker to the server.
_FETCH_TIMEOUT_S = 120


class JobClient(Protocol):
    """What jobs use of ``distributed.Client``."""

    def submit(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Start a task."""

    def subscribe_topic(self, topic: str, handler: Callable[[Any], object]) -> None:
        """Call ``handler`` with each event."""

    def run_on_scheduler(self, function: Any) -> Any:
        """Call a function in the scheduler's process."""

    def run_on_worker(self, worker: str, function: Any, *arguments: Any) -> Any:
        """Call a function in a worker's process."""

    def renew(self, *, has_workers: bool | None) -> bool:
        """Connect again if necessary; whether what was started is lost."""


@dataclass(frozen=True)
class Room:
    """A worker's resources, and which of them are free."""

    worker: str  # address
    total: Mapping[str, float]
    free: Mapping[str, float]
    #: The keys of the tasks that it was given.
    tasks: frozenset[str]


def room(client: JobClient) -> list[Room]:
    """Each worker of the cluster. Raises ClusterError if the scheduler does not answer."""
    from distributed.client import ClosedClientError

    try:
        workers = client.run_on_scheduler(_used)
    except (OSError, asyncio.TimeoutError, RuntimeError, ClosedClientError) as error:
        raise ClusterError(f"the scheduler does not answer: {error}") from error
    return [
        Room(worker, total, {name: total[name] - used.get(name, 0.0) for name in total}, tasks)
        for worker, (total, used, tasks) in workers.items()
    ]


def _used(dask_scheduler: Any) -> dict[str, tuple[dict[str, float], Any, frozenset[str]]]:
    """In the scheduler: the resources of each worker, those in use, and its tasks."""
    return {
        worker.address: (
            dict(worker.resources),
            _used_by(worker.processing),
            frozenset(str(task.key) for task in worker.processing),
        )
        for worker in dask_scheduler.workers.values()
        if worker in dask_scheduler.running
    }


def _used_by(tasks: Iterable[Any]) -> dict[str, float]:
    """The resources that tasks have, or wait for.

    The cores of a search are left out: there is always one more batch, so that a job would wait for
    the search's end. A job that is sent comes before the next batch. The board is the search's.
    """
    used: dict[str, float] = defaultdict(float)
    for task in tasks:
        for name, amount in (task.resource_restrictions or {}).items():
            if name != CORE or not str(task.key).startswith(MEASURING):
                used[name] += amount
    return dict(used)


def start_job(
    client: JobClient, spec: JobSpec, resources: Mapping[str, float], worker: str
) -> Future:
    """The future of the job's ``Outcome``, or of None if it was canceled."""
    return client.submit(
        *(run_job, spec),
        key=spec.task,
        resources=dict(resources),
        workers=[worker],
        allow_other_workers=False,
        pure=False,
        # A worker takes its tasks in order of priority. A session that waits for a board holds up
        # those behind it; a job is sent only where there is room, and so holds up nobody.
        priority=1,
    )


def files_so_far(
    client: JobClient, worker: str, task: str, names: tuple[str, ...]
) -> dict[str, bytes]:
    """The files of these names that a running attempt has made; none if its worker is lost."""
    try:
        found: dict[str, bytes] = client.run_on_worker(worker, made_so_far, task, names)
    except (OSError, asyncio.TimeoutError, RuntimeError, LookupError, ClusterError):
        return {}
    return found


def outcome_of(future: Future) -> Outcome | str | None:
    """What a future that is done holds: the outcome, a sentence that says what broke, or None.

    None: nobody runs it any more. The worker was lost, or the scheduler.
    """
    from distributed.client import CancelledError
    from distributed.scheduler import KilledWorker

    if future.cancelled():
        return None
    try:
        outcome: Outcome | None = future.result(timeout=_FETCH_TIMEOUT_S)
    except (OSError, asyncio.TimeoutError, CancelledError, KilledWorker):
        return None
    except Exception as error:
        # The task may raise any exception on the worker.
        return f"the job's worker failed: {type(error).__name__}: {error}"
    return outcome


def follow(client: JobClient, told: Callable[[Mapping[str, Any]], None]) -> None:
    """Call ``told`` with what workers report of all jobs, in the client's thread."""
    client.subscribe_topic(TOPIC, lambda event: told(event[1]))
