"""The server's end of sessions: which worker it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.jobs import room
from utvm_deploy.service.cluster.offers import Offer
from utvm_deploy.service.cluster.session_line import board_line

pytestmark = pytest.mark.tools

PATIENCE_S = 60.0


async def sessions_at_once(client: Any) -> list[frozenset[str]]:
    """Two sessions want one board at the same time: what the worker has while the first has it."""
    found: list[frozenset[str]] = []

    async def session(who: str) -> None:
        async with board_line(client, "host", who):
            await asyncio.sleep(1)  # the other one asks again meanwhile
            found.append(room(client)[0].tasks)

    await asyncio.wait_for(asyncio.gather(session("a"), session("b")), PATIENCE_S)
    return found


def test_no_session_waits_at_a_worker() -> None:
    """There it would hold up jobs for other boards."""
    with open_cluster(offered=[Offer("host", 1, "host")], cores=4) as client:
        first, second = asyncio.run(sessions_at_once(client))
    assert len(first) == len(second) == 1
    assert first != second
