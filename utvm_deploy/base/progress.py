"""How library code says how far it is; who shows it is the caller's matter."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done, how many steps are done, and how many there are."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def no_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""
