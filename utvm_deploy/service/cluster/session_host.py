"""A worker's part in sessions: a Dask task holds the board, and a separate process owns it.

    server ── Dask's comm to the worker's port ── worker's event loop ── socket pair ── process

The task takes the board's resource for as long as the session lasts. It ends when the server closes
the connection or says nothing for too long, when the process ends, and with the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from contextlib import ExitStack
from typing import Any

from distributed import Worker, get_worker
from distributed.core import Status

from utvm_deploy.base import process
from utvm_deploy.base.errors import LinkError
from utvm_deploy.boards.board import load_board
from utvm_deploy.service.client.session_messages import ALIVE, MESSAGE_BYTES, SILENCE_S, encode
from utvm_deploy.service.cluster.lease import held_entry

#: What servers ask the worker's port for.
OPERATION = "utvm_session"
#: How long the server may take to come to the worker that holds the board.
ATTACH_S = 30.0
#: How long other users of this machine may keep the worker from its board.
HELD_S = 30.0
#: The longest session.
SESSION_S = 24 * 3600.0

_LENGTH = struct.Struct("<I")
_MODULE = "utvm_deploy.service.cluster.session_child"

_sessions: dict[str, _Session] = {}


def topic_of(key: str) -> str:
    """The topic of the event that says which worker has the board."""
    return f"{OPERATION}-{key}"


def hold_board(key: str, board: str, who: str) -> str:
    """The Dask task: hold the board until the session ends; returns why it ended."""
    worker = get_worker()
    with ExitStack() as stack:
        serial: str | None = None
        if not load_board(board).runs_here:
            entry = stack.enter_context(held_entry(board, HELD_S, f"a session of {who}"))
            serial = entry.probe_serial
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        with theirs:
            argv = [sys.executable, "-m", _MODULE, str(theirs.fileno()), board]
            child = stack.enter_context(
                process.start(
                    [*argv, *([serial] if serial else [])],
                    env=process.child_environment(),
                    pass_fds=(theirs.fileno(),),
                    merges_output=True,
                )
            )
        session = _Session(ours, child)
        _sessions[key] = session
        stack.callback(_sessions.pop, key)
        worker.handlers[OPERATION] = _serve
        worker.log_event(topic_of(key), {"address": _address(worker)})
        return session.wait()


def _address(worker: Worker) -> str:
    # What other machines call the worker, if that is not what it listens at.
    return str(worker.contact_address or worker.address)


async def _serve(comm: Any, session: str = "") -> Status:
    """A server's connection: carry messages until the session ends."""
    found = _sessions.get(session)
    if found is None or found.is_attached.is_set():
        await comm.write(_ended("the board was given to somebody else; connect again"))
    else:
        await found.carry(comm)
    comm.abort()
    return Status.dont_reply


def _ended(reason: str) -> bytes:
    return encode({"session": "ended", "reason": reason})


class _Session:
    """One board, the process that owns it, and the connection of the server."""

    def __init__(self, ours: socket.socket, child: process.Child) -> None:
        self.is_attached = threading.Event()
        self._ours = ours
        self._child = child
        self._reason = ""
        self._has_ended = threading.Event()

    def wait(self) -> str:
        """In the task's thread: until the session is over; why it is."""
        if not self.is_attached.wait(ATTACH_S):
            return f"no server came for the board within {ATTACH_S:g} s"
        if not self._has_ended.wait(SESSION_S):
            return f"the session took longer than {SESSION_S / 3600:g} h"
        return self._reason

    async def carry(self, comm: Any) -> None:
        """In the worker's event loop."""
        self.is_attached.set()
        self._ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=self._ours)
        ways = {
            asyncio.ensure_future(self._there(comm, writer)),
            asyncio.ensure_future(self._back(reader, comm)),
        }
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            self._reason = "; ".join(sorted(one.result() for one in done))
            with contextlib.suppress(OSError):
                await comm.write(_ended(self._reason))
        finally:
            for one in ways:
                one.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            self._has_ended.set()

    async def _there(self, comm: Any, writer: asyncio.StreamWriter) -> str:
        """Messages of the client, to the process."""
        while True:
            try:
                data = await asyncio.wait_for(comm.read(), SILENCE_S)
            except asyncio.TimeoutError:
                return f"the server said nothing for {SILENCE_S:g} s"
            except OSError:  # Dask's CommClosedError, too
                return "the server closed the session"
            if not isinstance(data, bytes | bytearray | memoryview) or len(data) > MESSAGE_BYTES:
                return "the server sent something that is not a message"
            if bytes(data) == ALIVE:
                continue
            try:
                writer.write(_LENGTH.pack(len(data)) + data)
                await writer.drain()
            except OSError:
                return self._death()

    async def _back(self, reader: asyncio.StreamReader, comm: Any) -> str:
        """Replies of the process, to the client."""
        while True:
            try:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if length > MESSAGE_BYTES:
                    raise LinkError(f"the board's process sent {length} bytes at once")
                data = await reader.readexactly(length)
            except (asyncio.IncompleteReadError, OSError):
                return self._death()
            except LinkError as error:
                return str(error)
            try:
                await comm.write(data)
            except OSError:
                return "the server closed the session"

    def _death(self) -> str:
        words = self._child.last_words().splitlines()[-3:]
        said = f"; it said: {' / '.join(words)}" if words else ""
        return f"the process that owns the board ended{said}"
