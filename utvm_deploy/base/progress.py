"""How library code reports progress; the caller decides how to show it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with the current work, the steps that are done, and the number of steps."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def no_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""
