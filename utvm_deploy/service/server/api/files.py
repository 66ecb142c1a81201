"""Answers that are stored files."""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import FileResponse

from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.store.facts import JobFile
from utvm_deploy.service.server.store.refusals import NotFound

#: A page that a job made is shown without the rights of this server's own pages.
_FOREIGN_PAGE = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
_SHOWN = {"html": "text/html", "svg": "image/svg+xml", "txt": "text/plain", "json": "text/plain"}


def file_answer(parts: Parts, request: Request, file: JobFile, *, show: bool) -> Response:
    """A stored file, or a part of it. With ``show`` a browser shows it instead of saving it."""
    headers = {"etag": f'"{file.sha256}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    kind = _SHOWN.get(file.name.rpartition(".")[2]) if show else None
    if kind is not None:
        headers["content-security-policy"] = _FOREIGN_PAGE
    path = parts.files.path(file.sha256)
    if not path.is_file():
        raise NotFound(f"the file {file.name!r} has been removed")
    return FileResponse(
        path,
        filename=file.name,
        headers=headers,
        media_type=kind or "application/octet-stream",
        content_disposition_type="inline" if kind else "attachment",
    )
