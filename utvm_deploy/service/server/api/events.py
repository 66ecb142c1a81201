"""Server-sent events of a job. No listener has a thread: each looks for news twice a second.

The id of an event says how much of the log and of the verb's events was sent by then.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.security.guard import session_cookie
from utvm_deploy.service.server.store.facts import Job

_LOOK_S = 0.5
#: A comment keeps proxies and firewalls from ending a silent connection.
KEEPALIVE_S = 15.0
KEEPALIVE = ": nothing new\n\n"
#: How soon a client asks again, in milliseconds.
RETRY = "retry: 1000\n\n"
#: For the description of the interface.
STREAM: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"text/event-stream": {}}}},
}
#: Of a file, at a time.
_MOST_BYTES = 1 << 16
_ID = re.compile(r"(\d{1,15})-(\d{1,15})", re.ASCII)
_KIND = re.compile(r"[a-z]{1,20}", re.ASCII)


def end_of_streams(parts: Parts, request: Request) -> Callable[[], bool]:
    """Whether streams of this request are over: the server ends, or its login was ended."""
    closing, access = request.app.state.closing, parts.access
    cookie = session_cookie(request.headers)
    has_login = access.is_session(cookie)  # a program shows the token instead
    return lambda: closing.is_set() or (has_login and not access.is_session(cookie))


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """The answer that sends these events."""
    headers = {"cache-control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def job_events(
    parts: Parts, key: str, last_id: str, is_over: Callable[[], bool]
) -> AsyncIterator[str]:
    """The events of one job, until it has ended or the stream is over."""
    news = _News(parts, key, last_id)
    sent = time.monotonic()
    yield RETRY
    while True:
        found = await run_in_threadpool(lambda: list(news.read()))
        for event in found:
            yield event
            sent = time.monotonic()
        if news.is_over or is_over():
            return
        if time.monotonic() - sent > KEEPALIVE_S:
            yield KEEPALIVE
            sent = time.monotonic()
        if not found:
            await asyncio.sleep(_LOOK_S)


class _News:
    """What one listener has not seen yet."""

    def __init__(self, parts: Parts, key: str, last_id: str) -> None:
        self._parts = parts
        self._key = key
        match = _ID.fullmatch(last_id)
        self._log_at, self._events_at = (int(match[1]), int(match[2])) if match else (0, 0)
        self._job = ""
        self.is_over = False

    def read(self) -> Iterator[str]:
        """Events, oldest first."""
        # The job first: what it wrote before it ended is in the files by then.
        job = self._parts.database.job(self._key)
        if job is None:  # it was removed
            self.is_over = True
            return
        is_read = yield from self._written(job)
        now = json.dumps(asdict(job))
        if now != self._job and (is_read or not job.has_ended):
            self._job = now
            yield self._event("job", now)
        self.is_over = is_read and job.has_ended

    def _written(self, job: Job) -> Generator[str, None, bool]:
        """New lines of the log and of the verb's events; returns whether nothing is left."""
        folder = self._parts.jobs / self._key
        new = _tail(self._file_of(job, "log.txt", folder / "log"), self._log_at)
        is_read = len(new) < _MOST_BYTES
        if new := _whole_lines(new) or new:
            self._log_at += len(new)
            yield self._event("log", json.dumps({"text": new.decode("utf-8", "replace")}))
        new = _whole_lines(
            _tail(self._file_of(job, "events.jsonl", folder / "events"), self._events_at)
        )
        for line in new.splitlines(keepends=True):
            self._events_at += len(line)
            kind = _kind(line)
            if kind:
                yield self._event(kind, line.decode("utf-8", "replace").strip())
        return is_read and len(new) < _MOST_BYTES

    def _file_of(self, job: Job, name: str, growing: Path) -> Path:
        """The file that grows; of a job that has ended, the one that is kept."""
        kept = job.file(name)
        return growing if kept is None else self._parts.files.path(kept.sha256)

    def _event(self, kind: str, data: str) -> str:
        return f"id: {self._log_at}-{self._events_at}\nevent: {kind}\ndata: {data}\n\n"


def _tail(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]


def _kind(line: bytes) -> str:
    """The event's name; empty for progress, which is in the job's facts, and for damaged lines."""
    try:
        event = json.loads(line)
        kind = event["event"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    is_good = isinstance(kind, str) and _KIND.fullmatch(kind) is not None
    return kind if is_good and kind != "progress" else ""
