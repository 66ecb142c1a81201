"""/api/v1/models: what was uploaded, models and data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from utvm_deploy.base.errors import UsageError
from utvm_deploy.service.server.api.errors import PROBLEMS, Problem, next_page
from utvm_deploy.service.server.api.files import file_answer
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.api.starting import find_model
from utvm_deploy.service.server.jobs.uploads import keep_upload
from utvm_deploy.service.server.store.facts import JobFile, Model
from utvm_deploy.service.server.store.refusals import Conflict, NoRoom, NotFound
from utvm_deploy.service.server.store.removal import remove_model

#: The path that takes files.
UPLOAD = "/api/v1/models"
#: Of a form with a file.
_MOST_FIELDS, _MOST_FIELD_BYTES = 4, 4096
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


@asynccontextmanager
async def received_form(request: Request, most_fields: int) -> AsyncIterator[FormData]:
    """A form with at most one file. Raises NoRoom if the file cannot be kept for the moment."""
    try:
        form = await request.form(
            max_files=1, max_fields=most_fields, max_part_size=_MOST_FIELD_BYTES
        )
    except OSError as error:
        raise NoRoom(
            f"the server's folder for temporary files takes no upload ({error.strerror or error}); "
            "make room there"
        ) from error
    try:
        yield form
    finally:
        await form.close()


@asynccontextmanager
async def uploaded_file(request: Request) -> AsyncIterator[UploadFile]:
    """The one file of a form, in a temporary file. Raises UsageError if there is none."""
    async with received_form(request, _MOST_FIELDS) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise UsageError("file: send it as the file of a form (multipart/form-data)")
        yield file


def keep_model(parts: Parts, file: UploadFile) -> Model:
    """Check and keep an uploaded file; the same content again is the same model."""
    return keep_upload(
        file.file,
        file.filename or "",
        database=parts.database,
        files=parts.files,
        allow_code=parts.settings.allow_code,
    )


def model_routes(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["models"], responses=PROBLEMS)

    @routes.post(UPLOAD, status_code=201, openapi_extra=_FORM)
    async def upload(request: Request) -> Model:
        """Keep a model, or an .npz file of data. The same content again is the same model."""
        async with uploaded_file(request) as file:
            return await run_in_threadpool(keep_model, parts, file)

    @routes.get("/api/v1/models")
    def models(
        request: Request,
        response: Response,
        before: Annotated[str, Query(max_length=64)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[Model]:
        """Models, the newest first. The header Link has the address of the next page."""
        found = parts.database.models(before=before, most=limit)
        if len(found) == limit:
            response.headers["link"] = next_page(request, found[-1].sha256)
        return found

    @routes.get("/api/v1/models/{sha256}")
    def model(sha256: str) -> Model:
        """One model."""
        return find_model(parts, sha256)

    @routes.get("/api/v1/models/{sha256}/files")
    def made(sha256: str) -> list[JobFile]:
        """What was made of a model when it was uploaded, such as the picture of its graph."""
        return list(parts.database.model_files(find_model(parts, sha256).sha256))

    @routes.get("/api/v1/models/{sha256}/files/{name}", response_class=FileResponse)
    def file(request: Request, sha256: str, name: str, show: bool = False) -> Response:
        """One of those files, or the model itself by its name."""
        found = find_model(parts, sha256)
        for one in (JobFile(found.name, found.sha256, found.size), *made(sha256)):
            if one.name == name:
                return file_answer(parts, request, one, show=show)
        raise NotFound(f"model {found.name} has no file {name!r}")

    @routes.delete("/api/v1/models/{sha256}", status_code=204, responses={409: {"model": Problem}})
    def delete(sha256: str) -> None:
        """Remove a model that no job has."""
        found = find_model(parts, sha256)
        if not remove_model(parts.database, parts.files, found.sha256):
            raise Conflict(f"jobs have the model {found.name}; delete those first")

    return routes
