"""Bounds what one request may send: how much, and how slowly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utvm_deploy.frontend.files.limits import MAX_FILE_BYTES
from utvm_deploy.service.server.security.guard import refuse
from utvm_deploy.service.server.security.tokens import Refusal

#: What surrounds a file in a form: names, boundaries.
_FORM_BYTES = 64 << 10


@dataclass(frozen=True)
class BodyLimits:
    """Of one request, and of uploads at the same time."""

    most_bytes: int = 1 << 20
    most_upload_bytes: int = MAX_FILE_BYTES + _FORM_BYTES
    most_uploads: int = 8
    #: The time for a body: ``grace_s``, and one second for each ``bytes_a_second`` that arrived.
    grace_s: float = 20.0
    bytes_a_second: int = 16 << 10


#: Of every server.
LIMITS = BodyLimits()


class _Refused(Exception):
    """The body is cut off here."""


class BodyGuard:
    """Middleware around the application. ``uploads`` are the paths that take files."""

    def __init__(self, app: ASGIApp, uploads: Collection[str]) -> None:
        self._app = app
        self._uploads = frozenset(uploads)
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["method"] == "POST" and scope["path"] in self._uploads
        if is_upload and self._running >= LIMITS.most_uploads:
            await refuse(scope, send, _busy())
            return
        self._running += is_upload
        try:
            await self._pass(scope, receive, send, is_upload)
        finally:
            self._running -= is_upload

    async def _pass(self, scope: Scope, receive: Receive, send: Send, is_upload: bool) -> None:
        most = LIMITS.most_upload_bytes if is_upload else LIMITS.most_bytes
        if _declared(scope) > most:
            await refuse(scope, send, _too_large(most))
            return
        body = _Body(receive, most)
        answer = _Answer(send, body)
        try:
            await self._app(scope, body.receive, answer.send)
        except _Refused:
            if answer.has_started:
                raise
        if body.refusal is not None and not answer.has_started:
            await refuse(scope, send, body.refusal)


class _Body:
    """The receiving side of a request."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._started = time.monotonic()
        self._size = 0
        self._is_whole = False
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if self._is_whole:
            # The only message after the body says that the client has left.
            return await self._receive()
        allowed = LIMITS.grace_s + self._size / LIMITS.bytes_a_second
        left = self._started + allowed - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0))
        except asyncio.TimeoutError:
            raise self._refused(
                Refusal(408, "TooSlow", "the request's body comes too slowly; send it again")
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            raise self._refused(_too_large(self._most))
        self._is_whole = not message.get("more_body", False)
        return message

    def _refused(self, refusal: Refusal) -> _Refused:
        self.refusal = refusal
        return _Refused(refusal.error)


class _Answer:
    """The sending side; knows whether anything was sent."""

    def __init__(self, send: Send, body: _Body) -> None:
        self._send = send
        self._body = body
        self.has_started = False

    async def send(self, message: Message) -> None:
        # What an application makes of a body that was cut off is of no use.
        if self._body.refusal is None or self.has_started:
            self.has_started = True
            await self._send(message)


def _declared(scope: Scope) -> int:
    """The length that the request says; 0 if it says none. The HTTP parser has checked it."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


def _too_large(most: int) -> Refusal:
    text = f"the request has more than {most:,} bytes, which is the most that is taken here"
    return Refusal(413, "TooLarge", text)


def _busy() -> Refusal:
    text = "other uploads are running; send the file again in some seconds"
    return Refusal(503, "TooManyUploads", text, {"retry-after": "5"})
