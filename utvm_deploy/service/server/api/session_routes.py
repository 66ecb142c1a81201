"""Sessions on boards: a WebSocket of the client's, connected with the process that owns the board.

The messages are those of ``client.session_messages``. They pass through here unread: the server
limits their size, and the board's process checks what they hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from utvm_deploy import __version__
from utvm_deploy.base.errors import ClusterError, UtvmError
from utvm_deploy.boards.board import board_names, load_board, with_template
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.service.client.session_messages import ALIVE, SILENCE_S, encode
from utvm_deploy.service.cluster.offers import HOST
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.store.facts import RUNNING
from utvm_deploy.service.server.store.holders import Holders

#: The longest that a client may wait for a board.
LONGEST_WAIT_S = 3600.0
#: A client that asks for nothing for so long loses the board.
IDLE_S = 1800.0
_LOOK_S = 1.0
# A client waits for each reply, so that there are few: signs of life, and parts of an image.
_QUEUED_MESSAGES = 8
_PATH = "/api/v1/boards/{name}/session"


@dataclass(frozen=True)
class Limits:
    """How long a client may be silent, and ask for nothing."""

    silence_s: float = SILENCE_S
    idle_s: float = IDLE_S


def sessions_of(parts: Parts) -> APIRouter:
    """The routes of sessions of a server."""

    def jobs_on(board: str) -> list[str]:
        found = parts.database.jobs(state=RUNNING, board=board)
        return [f"the job {job.key} ({job.verb})" for job in found]

    return session_router(
        parts.cluster,
        parts.holders,
        jobs_on,
        parts.dispatcher.leaving_room,
        allow_code=parts.settings.allow_code,
    )


def session_router(
    cluster: Any,
    sessions: Holders,
    jobs_on: Callable[[str], Sequence[str]],
    leaving_room: Callable[[str], AbstractContextManager[None]],
    *,
    allow_code: bool,
    limits: Limits | None = None,
) -> APIRouter:
    """Routes of sessions.

    ``jobs_on`` gives phrases about the jobs that run on a board. While a session waits for a board,
    ``leaving_room`` keeps further jobs from it.
    """
    router = APIRouter()
    limits = limits or Limits()

    @router.get(_PATH)
    async def facts(name: str, template: str | None = None) -> JSONResponse:
        """Whether there can be a session on the board, and what this server knows of it."""
        refusal = await _refusal(cluster, name, allow_code)
        if refusal:
            return JSONResponse({"kind": "ServerError", "error": refusal}, 409)
        held = [*sessions.holders(name), *jobs_on(name)]
        digest = _digest(name, template)
        return JSONResponse(
            {"board": name, "digest": digest, "version": __version__, "held_by": held}
        )

    @router.websocket(_PATH)
    async def session(
        socket: WebSocket,
        name: str,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 60.0,
        who: Annotated[str, Query(alias="name", max_length=200)] = "somebody",
    ) -> None:
        """A session on the board, once it is free."""
        refusal = await _refusal(cluster, name, allow_code)
        if "origin" in socket.headers:
            refusal = "a web page asked for it; sessions are for programs"
        if refusal:
            answer = JSONResponse({"kind": "ServerError", "error": refusal}, 403)
            await socket.send_denial_response(answer)
            return
        await socket.accept()
        client = _Client(socket, limits)
        shown = "".join(letter for letter in who if letter.isprintable()) or "somebody"
        try:
            async with client.reading():

                def holder() -> str:
                    held = [*sessions.holders(name), *jobs_on(name)]
                    return " and ".join(held) or "it has no free worker"

                opening = _line_of(cluster, name, shown, leaving_room)
                reason = await _serve(client, opening, sessions, name, shown, wait_s, holder)
                await client.send(encode({"session": "ended", "reason": reason}))
                await socket.close()
        except (WebSocketDisconnect, RuntimeError, OSError, asyncio.TimeoutError):
            return  # the client has left, or reads nothing any more

    return router


@asynccontextmanager
async def _line_of(
    cluster: Any, board: str, who: str, leaving_room: Callable[[str], AbstractContextManager[None]]
) -> AsyncIterator[Any]:
    """A line to the board, before jobs that are queued: somebody waits for it."""
    from utvm_deploy.service.cluster.session_line import board_line

    async with contextlib.AsyncExitStack() as stack:
        with leaving_room(board):
            line = await stack.enter_async_context(board_line(cluster, board, who))
        yield line


async def _serve(
    client: _Client,
    wanted: AbstractAsyncContextManager[Any],
    sessions: Holders,
    board: str,
    who: str,
    wait_s: float,
    holder: Callable[[], str],
) -> str:
    """Wait for the board, then carry messages; returns why the session ended."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            opening = asyncio.ensure_future(stack.enter_async_context(wanted))
            try:
                reason = await _wait_for(opening, client, wait_s, holder)
            finally:
                if not opening.done():
                    opening.cancel()
                    await asyncio.gather(opening, return_exceptions=True)
            if reason:
                return f"{board} was not free within {wait_s:g} s: {reason}"
            line = opening.result()
            stack.enter_context(sessions.holding(board, who))
            await client.send(encode({"session": "ready"}))
            return await _carry(client, line)
    except ClusterError as error:
        return str(error)


async def _wait_for(
    opening: asyncio.Future[Any], client: _Client, wait_s: float, holder: Callable[[], str]
) -> str:
    """Until the board is ours; who has it if that takes too long."""
    end_s = time.monotonic() + wait_s
    gone = asyncio.ensure_future(client.gone.wait())
    try:
        while True:
            left_s = max(end_s - time.monotonic(), 0)
            await asyncio.wait(
                {opening, gone}, timeout=min(left_s, _LOOK_S), return_when=asyncio.FIRST_COMPLETED
            )
            if opening.done() or gone.done():
                return "" if opening.done() else client.why
            if time.monotonic() >= end_s:
                return holder()
            await client.send(encode({"session": "waiting", "holder": holder()}))
    finally:
        gone.cancel()


async def _carry(client: _Client, line: Any) -> str:
    """Messages both ways; returns why that ended."""
    ways = {asyncio.ensure_future(way) for way in (_there(client, line), _back(line, client))}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return "; ".join(sorted(one.result() for one in done))
    finally:
        for one in ways:
            one.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _there(client: _Client, line: Any) -> str:
    while True:
        data = await client.next()
        if data is None:
            return client.why
        try:
            await line.send(data)
        except ClusterError as error:
            return str(error)


async def _back(line: Any, client: _Client) -> str:
    while True:
        try:
            data = await line.receive()
        except ClusterError as error:
            return str(error)
        client.is_served()
        await client.send(data)


class _Client:
    """The client's end of the WebSocket; notices when it leaves or goes silent."""

    def __init__(self, socket: WebSocket, limits: Limits) -> None:
        self.gone = asyncio.Event()
        self.why = ""
        self._socket = socket
        self._limits = limits
        self._came: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_MESSAGES)
        self._active_s = time.monotonic()
        self._is_waiting = False

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Messages are taken during the block."""
        reader = asyncio.ensure_future(self._read())
        try:
            yield
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def is_served(self) -> None:
        """It got a reply: from now on it may ask for nothing for a while."""
        self._active_s = time.monotonic()
        self._is_waiting = False

    async def next(self) -> bytes | None:
        """The next message; None when the client has left."""
        return await self._came.get()

    async def send(self, data: bytes) -> None:
        """Send a message. A client that reads nothing counts as lost."""
        await asyncio.wait_for(self._socket.send_bytes(data), self._limits.silence_s)

    async def _read(self) -> None:
        try:
            while not self.why:
                data = await self._one()
                if data is not None:
                    await self._came.put(data)
        except (WebSocketDisconnect, RuntimeError, OSError):
            self.why = "the client left"
        finally:
            self.gone.set()
            # Its reader may wait, or the queue be full of what nobody needs any more.
            while self._came.full():
                self._came.get_nowait()
            self._came.put_nowait(None)

    async def _one(self) -> bytes | None:
        silence_s, idle_s = self._limits.silence_s, self._limits.idle_s
        try:
            message = await asyncio.wait_for(self._socket.receive(), silence_s)
        except asyncio.TimeoutError:
            self.why = f"nothing was heard of the client for {silence_s:g} s"
            return None
        if message["type"] != "websocket.receive":
            raise WebSocketDisconnect
        data = message.get("bytes")
        if not isinstance(data, bytes):
            self.why = "the client sent text, which no session has"
            return None
        if data != ALIVE:
            self._is_waiting = True
        elif not self._is_waiting and time.monotonic() - self._active_s > idle_s:
            self.why = f"the client asked for nothing for {idle_s:g} s, and the board is for all"
            return None
        return data


async def _refusal(cluster: Any, board: str, allow_code: bool) -> str:
    """Why there is no session on the board; empty if there can be one."""
    from utvm_deploy.service.cluster.session_line import offered_kinds

    try:
        kinds = await offered_kinds(cluster, board)
    except UtvmError as error:
        return str(error)
    if not kinds:
        return f"no worker of this server offers a board {board!r} now"
    if HOST in kinds and not allow_code:
        return (
            f"an image for {board} is a program that would run on the server; start it with "
            "`utvm serve --allow-code` if everybody who has the token may do that"
        )
    return ""


def _digest(board: str, template: str | None) -> str | None:
    """Of the board's facts, as this computer has them; None if it does not know the board."""
    if board not in board_names():
        return None
    return facts_digest(with_template(load_board(board), template))
