"""Jobs on a cluster, from the server's side: start, follow, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client, Future

from utvm_deploy.cluster.job import TOPIC, JobSpec, Outcome
from utvm_deploy.cluster.job_runner import run_job


def start_job(client: Client, spec: JobSpec, resources: Mapping[str, float]) -> Future:
    """The future of the job's ``Outcome``, or of None if it was canceled."""
    return client.submit(run_job, spec, key=spec.task, resources=dict(resources), pure=False)


def outcome_of(future: Future) -> Outcome | str | None:
    """What a future that is done holds: the outcome, a sentence that says what broke, or None."""
    if future.cancelled():
        return None
    error = future.exception()
    if error is not None:
        return f"the job's worker failed: {type(error).__name__}: {error}"
    outcome: Outcome | None = future.result()
    return outcome


def follow(client: Client, told: Callable[[Mapping[str, Any]], None]) -> None:
    """Call ``told`` with what workers report of all jobs, in the client's thread."""
    client.subscribe_topic(TOPIC, lambda event: told(event[1]))
