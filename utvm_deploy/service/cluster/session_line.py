"""The server's part in sessions: gets a board from the cluster, and moves messages to its worker.

Bytes go over a connection of Dask's to the worker's own port, with its encryption. That takes a
fifth of the time of an actor's call, and a seventh of that of a queue at the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from distributed.comm import connect

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster.facts import worker_facts
from utvm_deploy.service.cluster.jobs import room
from utvm_deploy.service.cluster.offers import CORE, board_resource
from utvm_deploy.service.cluster.session_host import OPERATION, hold_board, topic_of

#: How long the worker may take to answer once it has the board.
CONNECT_S = 15.0
#: How long a worker that has room may take to start the process that owns the board.
START_S = 60.0
_LOOK_S, _COUNT_S = 0.2, 0.01

_choosing: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
    weakref.WeakKeyDictionary()
)


class BoardLine:
    """Messages to and from the process that owns the board."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    async def send(self, data: bytes) -> None:
        """Send a message; ClusterError if the connection to the worker is lost."""
        try:
            await self._comm.write(data)
        except OSError as error:
            raise ClusterError("the worker that had the board was lost") from error

    async def receive(self) -> bytes:
        """The next message; ClusterError if the connection to the worker is lost."""
        try:
            return bytes(await self._comm.read())
        except (OSError, TypeError) as error:
            raise ClusterError("the worker that had the board was lost") from error


async def offered_kinds(client: Any, board: str) -> frozenset[str]:
    """What kinds of board (``offers.EMULATOR`` and others) the workers offer under this name."""
    workers = await asyncio.to_thread(worker_facts, client)
    return frozenset(
        offer.kind for worker in workers for offer in worker.offers if offer.board == board
    )


@asynccontextmanager
async def board_line(client: Any, board: str, who: str) -> AsyncIterator[BoardLine]:
    """A line to the board, once it is free; the board is given back with the end of the block.

    ClusterError if it cannot be had. The caller cancels a wait that takes too long.
    """
    key = secrets.token_hex(8)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def told(event: tuple[float, Any]) -> None:  # in the thread of Dask's client
        loop.call_soon_threadsafe(_settle, found, str(event[1]["address"]))

    await asyncio.to_thread(client.subscribe_topic, topic_of(key), told)
    task = None
    try:
        worker, task = await _held(client, key, board, who)
        end_s = loop.time() + START_S
        while not found.done():
            if task.done():
                raise ClusterError(await asyncio.to_thread(_failure, task))
            if loop.time() > end_s:
                raise ClusterError(f"the worker {worker} did not start the session; try it again")
            await asyncio.wait([found], timeout=_LOOK_S)
        async with _connection(client, found.result(), key) as comm:
            yield BoardLine(comm)
    finally:
        with contextlib.suppress(Exception):
            if task is not None:
                await asyncio.shield(asyncio.to_thread(task.cancel))
            await asyncio.shield(asyncio.to_thread(client.unsubscribe_topic, topic_of(key)))


async def _held(client: Any, key: str, board: str, who: str) -> tuple[str, Any]:
    """The worker that has the board free, once there is one, and the task that holds the board.

    A task that waits at a worker would hold up those behind it, which may want other boards.
    """
    needs = {CORE: 1.0, board_resource(board): 1.0}
    choosing = _choosing.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    while True:
        # One session at a time: two would choose the same board.
        async with choosing:
            worker = await _worker_with_room(client, needs)
            if worker is not None:
                task = client.submit(
                    hold_board,
                    *(key, board, who),
                    key=f"session-{key}",
                    resources=needs,
                    workers=[worker],
                    allow_other_workers=False,
                    retries=0,
                    pure=False,
                )
                try:
                    await _counted(client, task)
                except BaseException:
                    await asyncio.shield(asyncio.to_thread(task.cancel))
                    raise
                return worker, task
        await asyncio.sleep(_LOOK_S)


async def _worker_with_room(client: Any, needs: Mapping[str, float]) -> str | None:
    """The address of a worker that has room now."""
    for one in await asyncio.to_thread(room, client):
        if all(one.free.get(name, 0.0) >= amount for name, amount in needs.items()):
            return one.worker
    return None


async def _counted(client: Any, task: Any) -> None:
    """Wait until the scheduler counts what the task takes; it gets it a moment after us."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + CONNECT_S
    while not task.done() and loop.time() < end_s:
        if any(task.key in one.tasks for one in await asyncio.to_thread(room, client)):
            return
        await asyncio.sleep(_COUNT_S)


@asynccontextmanager
async def _connection(client: Any, address: str, key: str) -> AsyncIterator[Any]:
    arguments = client.security.get_connection_args("client")
    try:
        comm = await connect(address, timeout=CONNECT_S, deserialize=False, **arguments)
    except OSError as error:
        raise ClusterError(f"the worker at {address} does not answer ({error})") from error
    try:
        await comm.write({"op": OPERATION, "session": key, "reply": False})
        yield comm
    finally:
        comm.abort()


def _settle(found: asyncio.Future[str], address: str) -> None:
    # If Dask starts the task again elsewhere, the second address is ignored.
    if not found.done():
        found.set_result(address)


def _failure(task: Any) -> str:
    if task.cancelled():
        return "the cluster canceled the session"
    error = task.exception()
    if error is None:
        return str(task.result())
    return str(error) if isinstance(error, ClusterError) else f"the worker failed: {error}"
