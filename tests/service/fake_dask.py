"""A cluster whose tasks tests end by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster.job import JobSpec, Outcome


@dataclass
class Task:
    """An attempt that was sent."""

    spec: JobSpec
    worker: str
    resources: Mapping[str, float]
    future: Future[Outcome | None]
    cluster: FakeDask

    @property
    def key(self) -> str:
        return self.spec.key

    def start(self) -> None:
        """The worker begins."""
        self.tell({"started": 5.0, "worker": f"the desk {self.worker}"})

    def tell(self, news: Mapping[str, Any]) -> None:
        """What the worker reports meanwhile."""
        about = {"job": self.spec.key, "attempt": self.spec.attempt}
        self.cluster.told((0.0, {**about, **news}))

    def end(self, outcome: Outcome | None = None) -> None:
        """The worker ends it; by default well."""
        self.future.set_result(outcome or Outcome(0, b"{}", b"log\n", {}, worker=self.worker))


class FakeDask:
    """What the dispatcher uses of ``distributed.Client``."""

    def __init__(self, **workers: Mapping[str, float]) -> None:
        self.workers = workers
        self.tasks: list[Task] = []
        self.is_new = False  # whether the scheduler was lost and is there again
        self.is_lost = False
        self.told: Callable[[Any], object] = print
        self.follows = 0
        self.made: dict[str, bytes] = {}  # by each task that runs

    @property
    def running(self) -> list[Task]:
        return [task for task in self.tasks if not task.future.done()]

    def submit(self, _run_job: Any, spec: JobSpec, **options: Any) -> Future[Outcome | None]:
        assert options["key"] == f"job-{spec.key}-{spec.attempt}"
        assert options["allow_other_workers"] is False
        (worker,) = options["workers"]
        future: Future[Outcome | None] = Future()
        self.tasks.append(Task(spec, worker, options["resources"], future, self))
        return future

    def subscribe_topic(self, _topic: str, handler: Callable[[Any], object]) -> None:
        self.told = handler
        self.follows += 1

    def run_on_scheduler(self, _function: Any) -> dict[str, Any]:
        """The total of each worker, what is in use, and its tasks."""
        if self.is_lost:
            raise OSError("no scheduler")
        found = {}
        for worker, total in self.workers.items():
            used: dict[str, float] = {}
            mine = [task for task in self.running if task.worker == worker]
            for task in mine:
                for name, amount in task.resources.items():
                    used[name] = used.get(name, 0.0) + amount
            found[worker] = dict(total), used, frozenset(task.spec.task for task in mine)
        return found

    def run_on_worker(
        self, worker: str, _function: Any, task: str, names: tuple[str, ...]
    ) -> dict[str, bytes]:
        """The files that a running attempt has made by now."""
        assert task in {one.spec.task for one in self.running if one.worker == worker}
        if self.is_lost:
            raise OSError("no worker")
        return {name: content for name, content in self.made.items() if name in names}

    def renew(self, *, has_workers: bool | None) -> bool:
        if self.is_lost:
            raise ClusterError("no scheduler")
        is_new, self.is_new = self.is_new, False
        return is_new
