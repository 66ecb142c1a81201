"""Runs of this computer's store, by their own keys or by those of the jobs that did them."""

from __future__ import annotations

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.results.runs.run import Run
from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.store.refusals import NotFound


def find_runs(*, model: str, board: str, verb: str, most: int) -> list[Run]:
    """Runs, the newest first, without their results."""
    with RunStore(runs_file()) as store:
        return store.find(model=model, board=board, verb=verb, most=most)


def find_run(parts: Parts, key: str) -> Run:
    """The run with this key, or the run of the job with it. Raises NotFound."""
    job = parts.database.job(key)
    if job is not None and not job.run:
        raise UsageError(
            f"job {key} has kept no run; a {job.verb} job that is {job.state} has none"
        )
    with RunStore(runs_file()) as store:
        try:
            return store.get(key if job is None else job.run)
        except UtvmError as error:
            raise NotFound(f"there is no run {key!r}: {error}") from error
