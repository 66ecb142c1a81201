"""/login and /logout: a browser shows the token once and gets a cookie, until it is ended here."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from utvm_deploy.service.server.security.guard import COOKIE, LOGIN, session_cookie
from utvm_deploy.service.server.security.page import page
from utvm_deploy.service.server.security.tokens import SESSION_S, Access, Judge

_LONGEST = 4096


def login_routes(access: Access, judge: Judge) -> APIRouter:
    """The routes."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(LOGIN)
    def ask(next: str = "/") -> Response:
        if access.token is None:
            return RedirectResponse("/", 303)
        return _page(next)

    @routes.post(LOGIN)
    def check(
        request: Request,
        token: Annotated[str, Form(max_length=_LONGEST)],
        next: Annotated[str, Form(max_length=_LONGEST)] = "/",
    ) -> Response:
        refusal = judge.look(token.strip(), request.client.host if request.client else "")
        if refusal is not None:
            return _page(next, refusal.error, refusal.status)
        answer = RedirectResponse(_own(next), 303)
        answer.set_cookie(
            COOKIE,
            access.session(),
            max_age=SESSION_S,
            secure=access.is_encrypted,
            httponly=True,
            samesite="strict",
        )
        return answer

    @routes.post("/logout")
    def leave(request: Request, everywhere: Annotated[bool, Form()] = False) -> Response:
        if everywhere:
            access.logins.end_all()
        else:
            access.end_session(session_cookie(request.headers))
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, secure=access.is_encrypted, httponly=True, samesite="strict")
        return answer

    return routes


def _page(target: str, error: str = "", status: int = 200) -> Response:
    return page("login.html", status, next=_own(target), error=error)


def _own(target: str) -> str:
    """The page to show next, which must be one of this server's."""
    parts = urlsplit(target)
    is_own = not parts.scheme and not parts.netloc and target.startswith("/")
    # Browsers take a backslash for a slash.
    is_own = is_own and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own else "/"
