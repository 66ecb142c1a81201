"""/api/docs: the HTTP interface for people. It loads nothing from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from utvm_deploy.service.server.security.page import page

_REST = "sessions"


@dataclass(frozen=True)
class Route:
    """One row of the list."""

    method: str
    path: str
    what: str
    parameters: tuple[str, ...]  # of the query


def docs_routes(app: FastAPI) -> APIRouter:
    """The routes."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/api/docs")
    def docs() -> HTMLResponse:
        return page("api.html", groups=_groups(app.openapi()))

    return routes


def _groups(description: dict[str, Any]) -> list[tuple[str, list[Route]]]:
    """The routes of each tag."""
    found: dict[str, list[Route]] = defaultdict(list)
    for path, methods in description["paths"].items():
        for method, facts in methods.items():
            names = (one["name"] for one in facts.get("parameters", ()) if one["in"] == "query")
            tag = (facts.get("tags") or [_REST])[0]
            what = facts.get("description") or facts.get("summary", "")
            found[tag].append(Route(method.upper(), path, what, tuple(names)))
    return list(found.items())
