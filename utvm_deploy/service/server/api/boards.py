"""/api/v1/boards: which boards there are, and who has them. /api/v1/events: the same, live."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from utvm_deploy.service.server.api import events as sse
from utvm_deploy.service.server.api.errors import PROBLEMS
from utvm_deploy.service.server.api.events import STREAM, end_of_streams, event_stream
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.board_states import BoardState
from utvm_deploy.service.server.store.cached import Cached
from utvm_deploy.service.server.store.refusals import NotFound

#: How often listeners get news.
_LOOK_S = 1.0


def board_routes(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api/v1", tags=["boards"], responses=PROBLEMS)
    overview = Cached(lambda: _overview(parts), _LOOK_S)

    @routes.get("/boards")
    def boards(offered: bool = False) -> list[BoardState]:
        """All boards; with ``offered`` only those that a worker has."""
        found = parts.boards.states()
        return [one for one in found if one.count or not offered]

    @routes.get("/boards/{name}")
    def board(name: str) -> BoardState:
        """One board."""
        found = parts.boards.state(name)
        if found is None:
            raise NotFound(f"there is no board {name!r}; see /api/v1/boards")
        return found

    @routes.get("/counts")
    def counts() -> dict[str, int]:
        """How many jobs there are in each state."""
        return parts.database.counts()

    @routes.get("/events", **STREAM)
    async def events(request: Request) -> StreamingResponse:
        """What changes, as server-sent events: ``counts`` of jobs by state, and ``boards``."""
        return event_stream(_events(overview, end_of_streams(parts, request)))

    return routes


async def _events(
    overview: Cached[dict[str, str]], is_over: Callable[[], bool]
) -> AsyncIterator[str]:
    seen: dict[str, str] = {}
    sent = time.monotonic()
    yield sse.RETRY
    while not is_over():
        for kind, data in (await run_in_threadpool(overview.get)).items():
            if seen.get(kind) != data:
                seen[kind] = data
                sent = time.monotonic()
                yield f"event: {kind}\ndata: {data}\n\n"
        if time.monotonic() - sent > sse.KEEPALIVE_S:
            sent = time.monotonic()
            yield sse.KEEPALIVE
        await asyncio.sleep(_LOOK_S)


def _overview(parts: Parts) -> dict[str, str]:
    """The events of now: the same text as long as nothing has changed."""
    boards = [asdict(one) for one in parts.boards.states() if one.count]
    for board in boards:
        for offering in board["offerings"]:
            del offering["last_seen"]  # changes every second
    return {"counts": json.dumps(parts.database.counts()), "boards": json.dumps(boards)}
