"""Who has a session on which board."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """One session."""

    board: str
    who: str
    since: float  # seconds since 1970


class Holders:
    """The sessions that this server has now."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._numbers = itertools.count()

    @contextmanager
    def holding(self, board: str, who: str) -> Iterator[None]:
        """Within the block, ``who`` has the board."""
        key = next(self._numbers)
        self._held[key] = Held(board, who, time.time())
        try:
            yield
        finally:
            del self._held[key]

    def all(self) -> list[Held]:
        """The sessions of all boards."""
        return list(self._held.values())

    def holders(self, board: str) -> list[str]:
        """Phrases that say who has a board, and for how long."""
        now = time.time()
        return [
            f"a session of {one.who} for {now - one.since:.0f} s"
            for one in self.all()
            if one.board == board
        ]
