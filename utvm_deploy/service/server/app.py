"""The application: /api/v1/... for programs, the other paths for browsers."""

from __future__ import annotations

from threading import Event
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from utvm_deploy import __version__
from utvm_deploy.base.paths import runs_file
from utvm_deploy.service.server.api.boards import board_routes
from utvm_deploy.service.server.api.docs import docs_routes
from utvm_deploy.service.server.api.errors import add_handlers
from utvm_deploy.service.server.api.jobs import job_routes
from utvm_deploy.service.server.api.models import UPLOAD, model_routes
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.api.runs import run_routes
from utvm_deploy.service.server.api.session_routes import sessions_of
from utvm_deploy.service.server.security.bodies import BodyGuard
from utvm_deploy.service.server.security.guard import Guard
from utvm_deploy.service.server.security.login import login_routes
from utvm_deploy.service.server.security.tokens import Judge
from utvm_deploy.service.server.web.routes import START, pages


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The description of the interface, with the token, and without what never happens."""
        found = super().openapi()
        schemes = found.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer"}
        found["security"] = [{"token": []}, {}]  # or none, on loopback
        for methods in found["paths"].values():
            for facts in methods.values():
                # Requests of the wrong form are answered with 400.
                facts["responses"].pop("422", None)
        return found


def make_app(parts: Parts, closing: Event | None = None) -> ASGIApp:
    """The application behind its guards. Streams of events end when ``closing`` is set."""
    app = _Application(
        title="utvm_deploy",
        version=__version__,
        openapi_url="/api/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.closing = closing or Event()
    add_handlers(app, (parts.settings.data, runs_file().parent))
    parts.access.logins.keep_in(parts.database)
    judge = Judge(parts.access)
    app.include_router(login_routes(parts.access, judge))
    for routes in (model_routes, job_routes, board_routes, run_routes, sessions_of, pages):
        app.include_router(routes(parts))
    app.include_router(docs_routes(app))
    return Guard(BodyGuard(app, [UPLOAD, START]), parts.access, judge)
