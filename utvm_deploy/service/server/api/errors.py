"""Errors as answers of a fitting status: ``{"kind": ..., "error": one sentence}``, or a page."""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException

from utvm_deploy.base.errors import BenchError, UsageError, UtvmError
from utvm_deploy.service.server.security.page import error_page
from utvm_deploy.service.server.store import refusals

log = logging.getLogger(__name__)

#: Paths for programs; the others are for browsers.
_PROGRAMS = "/api/"
#: How many problems of a request the answer lists; it counts the others.
_MOST_TOLD = 3
_LONGEST_TOLD = 200


class Problem(BaseModel):
    """Why a request failed."""

    kind: str
    error: str


#: For the description of the interface.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "the request is wrong"},
    404: {"model": Problem, "description": "there is no such thing"},
}
_STATUS: tuple[tuple[type[UtvmError], int], ...] = (
    (refusals.NotFound, 404),
    (refusals.Conflict, 409),
    (UsageError, 400),
    (BenchError, 400),
    (refusals.UploadRefused, 400),
    (refusals.NoRoom, 507),
    (refusals.Busy, 503),
)


def status_of(error: UtvmError) -> int:
    """The HTTP status of an answer with this error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def next_page(request: Request, last: str) -> str:
    """The header Link of a page of a list: where the page after ``last`` is."""
    url = request.url.include_query_params(before=last)
    return f'<{url.path}?{url.query}>; rel="next"'


def add_handlers(app: FastAPI, folders: tuple[Path, ...]) -> None:
    """Make the application answer with such errors. They never show the paths of ``folders``."""

    def without_paths(text: str) -> str:
        for folder in folders:
            text = text.replace(f"{folder}/", "").replace(str(folder), "the server's folder")
        return text

    @app.exception_handler(UtvmError)
    def expected(request: Request, error: UtvmError) -> Response:
        status = status_of(error)
        if status >= 500:
            log.warning("%s", error)
        return _answer(request, status, type(error).__name__, without_paths(str(error)))

    @app.exception_handler(StarletteHTTPException)
    def plain(request: Request, error: StarletteHTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        sentence = (
            str(error.detail)
            if error.detail != phrase
            else _SENTENCES.get(error.status_code, phrase.lower())
        )
        return _answer(request, error.status_code, phrase.replace(" ", ""), sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        is_json = "json" in request.headers.get("content-type", "")
        if not is_json and any(tuple(one["loc"]) == ("body",) for one in found):
            text = "send the request's body as JSON, with Content-Type: application/json"
            return _answer(request, 400, "UsageError", text)
        told = [_told(one) for one in found[:_MOST_TOLD]]
        if len(found) > _MOST_TOLD:
            told.append(f"{len(found) - _MOST_TOLD} more")
        return _answer(request, 400, "UsageError", "; ".join(told))

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        text = f"the server met {type(error).__name__}, which is a bug; its output says where"
        return _answer(request, 500, "Bug", text)


_SENTENCES = {
    404: "there is no such page; /api/docs lists what there is",
    405: "this address does not take this method; /api/docs lists what there is",
}


def _answer(request: Request, status: int, kind: str, error: str, headers: Any = None) -> Response:
    if not request.url.path.startswith(_PROGRAMS):
        return error_page(status, error)
    return JSONResponse({"kind": kind, "error": error}, status, headers)


def _told(problem: Any) -> str:
    """What is wrong with one field."""
    place = ".".join(str(part) for part in problem["loc"] if part not in ("body", "query", "path"))
    text = str(problem["msg"])
    sentence = f"{place or 'the request'}: {text}"[:_LONGEST_TOLD]
    # Names of fields come from the request.
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in sentence)
