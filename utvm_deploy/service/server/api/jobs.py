"""/api/v1/jobs: start, list, follow and cancel jobs, and fetch their files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from utvm_deploy.base.errors import UsageError
from utvm_deploy.service.server.api import starting
from utvm_deploy.service.server.api.errors import PROBLEMS, Problem, next_page
from utvm_deploy.service.server.api.events import STREAM, end_of_streams, event_stream, job_events
from utvm_deploy.service.server.api.files import file_answer
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.store.facts import STATES, Job
from utvm_deploy.service.server.store.refusals import Conflict, NotFound
from utvm_deploy.service.server.store.removal import remove_jobs

_Name = Annotated[str, Field(max_length=100)]
_Value = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | Annotated[str, Field(max_length=200)]


class WantedJobs(BaseModel):
    """A verb for models on one or several boards: a job for each board."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verb: _Name
    models: Annotated[list[_Name], Field(max_length=starting.MOST_MODELS)]
    boards: Annotated[list[_Name], Field(max_length=starting.MOST_BOARDS)] = []
    options: Annotated[dict[_Name, _Value], Field(max_length=starting.MOST_OPTIONS)] = {}


def job_routes(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=PROBLEMS)
    database = parts.database

    @routes.post("", status_code=201, responses={409: {"model": Problem}})
    def start(
        wanted: WantedJobs, idempotency_key: Annotated[str, Header(max_length=100)] = ""
    ) -> list[Job]:
        """Start jobs. A request that is repeated with the same Idempotency-Key starts them once."""
        facts = starting.Wanted(wanted.verb, wanted.models, wanted.boards, wanted.options)
        return starting.start_jobs(parts, facts, idempotency_key)

    @routes.get("")
    def jobs(
        request: Request,
        response: Response,
        state: _Name = "",
        board: _Name = "",
        verb: _Name = "",
        model: _Name = "",
        since: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        before: _Name = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[Job]:
        """Jobs, the newest first. The header Link has the address of the next page."""
        if state and state not in STATES:
            raise UsageError(f"state: {state!r} is not one of {', '.join(STATES)}")
        found = database.jobs(
            state=state, board=board, verb=verb, model=model, since=since, before=before, most=limit
        )
        if len(found) == limit:
            response.headers["link"] = next_page(request, found[-1].key)
        return found

    @routes.get("/{key}")
    def job(key: str) -> Job:
        """One job."""
        return starting.find_job(parts, key)

    @routes.post("/{key}/cancel")
    def cancel(key: str) -> Job:
        """End a job. One that has ended stays as it is."""
        parts.dispatcher.cancel(starting.find_job(parts, key).key, "somebody canceled it")
        return starting.find_job(parts, key)

    @routes.delete("/{key}", status_code=204, responses={409: {"model": Problem}})
    def delete(key: str) -> None:
        """Remove a job that has ended, and its files."""
        job = starting.find_job(parts, key)
        remove_jobs(parts.database, parts.files, [job.key])
        if parts.database.job(job.key) is not None:
            raise Conflict(f"job {key} is {job.state}; cancel it first")

    @routes.get("/{key}/log", response_class=PlainTextResponse)
    def log(key: str) -> str:
        """What the verb wrote to stderr: of a job that runs, so far."""
        job = starting.find_job(parts, key)
        if kept := job.file("log.txt"):
            return parts.files.path(kept.sha256).read_text("utf-8", "replace")
        try:
            return (parts.jobs / job.key / "log").read_text("utf-8", "replace")
        except OSError:
            return ""

    @routes.get("/{key}/files/{name}", response_class=FileResponse)
    def file(request: Request, key: str, name: str, show: bool = False) -> Response:
        """A file that the job made. With ``show`` a browser shows it instead of saving it."""
        if found := starting.find_job(parts, key).file(name):
            return file_answer(parts, request, found, show=show)
        raise NotFound(f"job {key} has no file {name!r}")

    @routes.get("/{key}/events", **STREAM)
    async def events(
        request: Request, key: str, last_event_id: Annotated[str, Header(max_length=100)] = ""
    ) -> StreamingResponse:
        """What happens, as server-sent events, until the job has ended.

        ``job`` has the job's facts, ``log`` new lines of the log, ``tuning`` and ``training`` a
        point of the curve.
        A client that repeats the request with Last-Event-ID misses nothing.
        """
        starting.find_job(parts, key)
        is_over = end_of_streams(parts, request)
        return event_stream(job_events(parts, key, last_event_id, is_over))

    return routes
