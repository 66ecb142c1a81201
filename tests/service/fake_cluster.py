"""A cluster without Dask: jobs are calls of a function in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from utvm_deploy.boards.board import board_names
from utvm_deploy.service.cluster.facts import KEY
from utvm_deploy.service.cluster.job import JobSpec, Outcome


def succeed(spec: JobSpec) -> Outcome:
    """What most tests need a job to do: it ends, and makes each of its files."""
    files = {name: f"{name} of {spec.key}".encode() for name in spec.outputs}
    return Outcome(0, b'{"schema": "utvm.fake/1"}', b"a log\n", files, worker="fake")


class FakeCluster:
    """Has what the server uses of ``distributed.Client``."""

    def __init__(self) -> None:
        #: What a job does. Tests replace it.
        self.run: Callable[[JobSpec], Outcome | None] = succeed
        self.started: list[JobSpec] = []
        #: Files of jobs that run, by the keys of their tasks.
        self.made: dict[str, dict[str, bytes]] = {}
        boards = {f"board:{name}": 8.0 for name in board_names()}
        self.workers: dict[str, Any] = {"fake": ({"core": 8.0, **boards}, {}, frozenset())}
        offers = [{"board": name, "count": 8, "kind": "emulator"} for name in board_names()]
        self.identity = {
            "fake": {
                "name": "fake",
                "last_seen": 5.0,
                KEY: {"host": "fake", "offers": offers, "versions": {}},
            }
        }
        self.scheduler = SimpleNamespace(identity=lambda n_workers: {"workers": self.identity})
        self._pool = ThreadPoolExecutor(8)
        self._told: list[Callable[[Any], object]] = []
        self.closing = threading.Event()

    def submit(self, _run_job: Any, spec: JobSpec, **_options: Any) -> Future[Outcome | None]:
        if self.closing.is_set():
            return Future()  # nobody runs it
        self.started.append(spec)
        return self._pool.submit(lambda: self.run(spec))

    def sync(
        self, function: Callable[..., Any], *, callback_timeout: float, **arguments: Any
    ) -> Any:
        """The scheduler's answer to a question."""
        return function(**arguments)

    def run_on_scheduler(self, _function: Any) -> dict[str, Any]:
        """Workers with their resources, those in use, and their tasks."""
        return self.workers

    def run_on_worker(self, _worker: str, _function: Any, task: str, *_: Any) -> dict[str, bytes]:
        """The files that a job which runs has made."""
        return self.made.get(task, {})

    def renew(self, *, has_workers: bool | None) -> bool:
        """Whether what was started is lost."""
        return False

    def subscribe_topic(self, _topic: str, handler: Callable[[Any], object]) -> None:
        self._told.append(handler)

    def tell(self, spec: JobSpec, news: Mapping[str, Any]) -> None:
        """What a worker reports while a job runs."""
        for handler in self._told:
            handler((0.0, {"job": spec.key, "attempt": spec.attempt, **news}))

    def close(self) -> None:
        """Jobs that wait for ``closing`` end."""
        self.closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
