"""What the first page shows: what runs, what waits, what failed, what is free."""

from __future__ import annotations

from typing import Any

from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.store.facts import CANCELED, DONE, FAILED, QUEUED, RUNNING
from utvm_deploy.service.server.web.boards import boards_now

#: Jobs of each list.
_RUNNING, _QUEUED, _FAILED, _DONE = 20, 10, 5, 8


def now_values(parts: Parts) -> dict[str, Any]:
    """What ``overview_live.html`` shows."""
    database = parts.database
    counts = database.counts()
    boards = boards_now(parts)
    return {
        "counts": {state: counts.get(state, 0) for state in (RUNNING, QUEUED, DONE, FAILED)},
        "can_sign_out": parts.access.token is not None,
        "is_new": not any(counts.values()),
        "canceled": counts.get(CANCELED, 0),
        "running": database.jobs(state=RUNNING, most=_RUNNING),
        "queued": database.oldest_jobs(QUEUED, _QUEUED),
        "failed": database.jobs(state=FAILED, most=_FAILED),
        "done": database.jobs(state=DONE, most=_DONE),
        "boards": boards,
        "offered_boards": sum(board.state.count > 0 for board in boards),
        "free_boards": sum(board.is_free for board in boards),
    }
