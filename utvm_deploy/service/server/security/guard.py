"""Looks at every request before the application does: is it for this server, from whom, and may it?

Requests are refused as JSON. A browser without a session is sent to the page that asks for the
token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utvm_deploy.service.server.security.tokens import Access, Judge, Refusal

MOST_HEADER_BYTES = 32 << 10
COOKIE = "utvm_session"
LOGIN = "/login"
#: What a browser needs before it is logged in.
_STATIC = "/static/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Where a request of a browser may come from: this server's pages, or the user.
_OWN_SITES = frozenset({"same-origin", "none"})

#: Pages load what this server serves, and nothing else. Bars and curves have their sizes in
#: attributes of style.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    # With no-referrer, browsers would send forms with the origin "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-cache",
}


class Guard:
    """Middleware around the application."""

    def __init__(self, app: ASGIApp, access: Access, judge: Judge) -> None:
        self._app = app
        self._access = access
        self._judge = judge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(scope, with_headers(send), refusal)
            return
        if scope["type"] == "http" and scope["method"] == "HEAD":
            # The HTTP server leaves the body out.
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, with_headers(send))

    def _refusal(self, scope: Scope) -> Refusal | None:
        if sum(len(name) + len(text) for name, text in scope["headers"]) > MOST_HEADER_BYTES:
            text = f"the request's headers have more than {MOST_HEADER_BYTES:,} bytes"
            return Refusal(431, "TooLarge", text)
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        host = headers.get("host", "")
        if not self._access.is_here(host):
            return Refusal(
                421, "WrongHost", f"this server is not {host!r}; use the address that it printed"
            )
        if _is_foreign(scope, headers, host):
            return Refusal(
                403, "WrongOrigin", "a page of another server sent this; use this server's own page"
            )
        if self._access.token is None or _is_public(scope["path"]):
            return None
        if self._access.is_session(session_cookie(headers)):
            return None
        return self._token_refusal(scope, headers)

    def _token_refusal(self, scope: Scope, headers: Mapping[str, str]) -> Refusal | None:
        address = (scope.get("client") or ("", 0))[0]
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._judge.look(token.strip(), address)
        if scope["type"] == "http" and "text/html" in headers.get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            target = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
            where = {"location": f"{LOGIN}?next={target}"}
            return Refusal(303, "NoToken", "log in", where)
        return Refusal(
            401,
            "NoToken",
            "this server wants a token; set UTVM_TOKEN or write it to the token file",
            {"www-authenticate": "Bearer"},
        )


def with_headers(send: Send) -> Send:
    """Adds the security headers that an answer does not have."""

    async def sending(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in present
            ]
            message["headers"] = headers
        await send(message)

    return sending


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Answer with the refusal instead of the application."""
    start, body = "http.response.start", "http.response.body"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.error[:120]})
            return
        start, body = f"websocket.{start}", f"websocket.{body}"
    content = json.dumps({"kind": refusal.kind, "error": refusal.error}).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(content)),
        **refusal.headers,
    }
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": start, "status": refusal.status, "headers": raw})
    await send({"type": body, "body": content})


def _is_public(path: str) -> bool:
    return path == LOGIN or path.startswith(_STATIC)


def _is_foreign(scope: Scope, headers: Mapping[str, str], host: str) -> bool:
    """Whether a page of another server makes a browser send what changes something here.

    Browsers say where such a request comes from; programs say nothing.
    """
    if scope["type"] == "http" and scope["method"] in _READING:
        return False
    secure = scope.get("scheme") in ("https", "wss")
    own = f"{'https' if secure else 'http'}://{host}".lower()
    if headers.get("origin", own).lower() != own:
        return True
    return headers.get("sec-fetch-site", "none") not in _OWN_SITES


def session_cookie(headers: Mapping[str, str]) -> str:
    """The cookie of a browser's login; empty if there is none."""
    # SimpleCookie gives up at cookies of other programs on this host, such as JSON.
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
