"""The HTTP interface: /api/v1/... for programs, the other paths for browsers."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from utvm_deploy import __version__
from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.boards.board import board_names
from utvm_deploy.service.database import Database
from utvm_deploy.service.facts import QUEUED, Job, Model
from utvm_deploy.service.parts import Parts
from utvm_deploy.service.session_routes import sessions_of
from utvm_deploy.service.verbs import command_line, verb_of

_CHUNK_BYTES = 1 << 20
_LOOK_S = 0.5


def make_app(parts: Parts) -> FastAPI:
    """The application."""
    database, files, dispatcher = parts.database, parts.files, parts.dispatcher
    app = FastAPI(title="utvm_deploy", version=__version__)

    @app.exception_handler(UtvmError)
    def refused(_request: Request, error: UtvmError) -> JSONResponse:
        status = 400 if isinstance(error, UsageError) else 500
        return JSONResponse({"kind": type(error).__name__, "error": str(error)}, status)

    app.include_router(sessions_of(parts))

    @app.post("/api/v1/models", status_code=201)
    def upload(file: UploadFile) -> dict[str, Any]:
        """Keep a model file; the same content again is the same model."""
        with files.writing() as kept:
            while chunk := file.file.read(_CHUNK_BYTES):
                kept.write(chunk)
        model = Model(
            kept.sha256, Path(file.filename or "model.tflite").name, kept.size, time.time()
        )
        database.add_model(model)
        return asdict(model)

    @app.get("/api/v1/models")
    def models() -> list[dict[str, Any]]:
        return [asdict(model) for model in database.models()]

    @app.post("/api/v1/jobs", status_code=201)
    def start(wanted: Annotated[dict[str, Any], Body()]) -> list[dict[str, Any]]:
        """Start a verb for models on one or several boards: a job for each board."""
        verb = verb_of(str(wanted.get("verb", "")))
        found = [_model(database, digest) for digest in wanted["models"]]
        boards = list(wanted.get("boards", ())) if verb.has_board else [""]
        options = dict(wanted.get("options", {}))
        made = []
        for board in boards:
            if board and board not in board_names():
                raise UsageError(f"no board {board!r} is known here")
            command_line(verb, [model.name for model in found], board, options)
            made.append(
                Job(
                    *(secrets.token_hex(6), verb.name, board, tuple(found), options),
                    *(QUEUED, time.time()),
                )
            )
        for job in made:
            database.add_job(job)
        dispatcher.wake()
        return [asdict(job) for job in made]

    @app.get("/api/v1/jobs")
    def jobs(state: str = "", board: str = "", model: str = "") -> list[dict[str, Any]]:
        found = database.jobs(state=state, board=board, model=model)
        return [asdict(job) for job in found]

    @app.get("/api/v1/jobs/{key}")
    def job(key: str) -> dict[str, Any]:
        return asdict(_job(database, key))

    @app.post("/api/v1/jobs/{key}/cancel")
    def cancel(key: str) -> dict[str, Any]:
        dispatcher.cancel(_job(database, key).key, "somebody canceled it")
        return asdict(_job(database, key))

    @app.get("/api/v1/jobs/{key}/files/{name}")
    def file(key: str, name: str) -> FileResponse:
        for one in _job(database, key).files:
            if one.name == name:
                return FileResponse(files.path(one.sha256), filename=name)
        raise HTTPException(404, f"job {key} has no file {name!r}")

    @app.get("/api/v1/jobs/{key}/events")
    def events(key: str) -> StreamingResponse:
        """What happens, as server-sent events, until the job has ended."""
        return StreamingResponse(_events(database, key), media_type="text/event-stream")

    return app


def _events(database: Database, key: str) -> Iterator[str]:
    last = ""
    while True:
        job = _job(database, key)
        now = json.dumps(asdict(job))
        if now != last:
            yield f"data: {now}\n\n"
            last = now
        if job.has_ended:
            return
        time.sleep(_LOOK_S)


def _job(database: Database, key: str) -> Job:
    job = database.job(key)
    if job is None:
        raise HTTPException(404, f"there is no job {key!r}")
    return job


def _model(database: Database, sha256: str) -> Model:
    model = database.model(sha256)
    if model is None:
        raise HTTPException(404, f"there is no model {sha256!r}; upload it first")
    return model
