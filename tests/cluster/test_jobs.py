"""What is free on the workers of a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster.jobs import room


class FakeScheduler:
    """What is used of Dask's scheduler, and a client of it."""

    def __init__(self, *workers: Any) -> None:
        self.workers = {worker.address: worker for worker in workers}
        self.running = list(workers)

    def run_on_scheduler(self, function: Any) -> Any:
        return function(self)


def worker(address: str, resources: dict[str, float], **tasks: dict[str, float] | None) -> Any:
    processing = [
        SimpleNamespace(key=key.replace("_", "-"), resource_restrictions=used)
        for key, used in tasks.items()
    ]
    return SimpleNamespace(address=address, resources=resources, processing=processing)


def test_a_search_holds_its_board_and_lets_jobs_of_others_through() -> None:
    half = {"core": 0.5, "board:a": 0.5}
    busy = worker(
        *("w", {"core": 2.0, "board:a": 1.0, "board:b": 1.0}),
        tune_1=half,
        tune_2=half,
        job_3={"core": 1.0},
        other=None,
    )
    paused = worker("paused", {"core": 8.0})
    scheduler = FakeScheduler(busy, paused)
    scheduler.running.remove(paused)
    (found,) = room(scheduler)  # type: ignore[arg-type]
    assert found.free == {"core": 1.0, "board:a": 0.0, "board:b": 1.0}
    assert found.tasks == {"tune-1", "tune-2", "job-3", "other"}


def test_a_scheduler_that_does_not_answer_is_told() -> None:
    def closed(_function: Any) -> Any:
        raise OSError("closed")

    client = SimpleNamespace(run_on_scheduler=closed)
    with pytest.raises(ClusterError, match="the scheduler does not answer: closed"):
        room(client)  # type: ignore[arg-type]
