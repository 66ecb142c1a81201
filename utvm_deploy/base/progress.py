"""How library code reports progress; the caller decides how to show it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

#: A line that changes more often cannot be read.
_INTERVAL_S = 0.1


class Progress(Protocol):
    """Called with the current work, the steps that are done, and the number of steps."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def no_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def shown_progress(given: Progress | None, stream: TextIO | None = None) -> Iterator[Progress]:
    """What a caller gave, or a line on stderr in a terminal and in a notebook, and else nothing."""
    stream = stream or sys.stderr
    if given is not None or stream is None or not _is_watched(stream):
        yield given or no_progress
        return
    shown_at, width = 0.0, 0

    def show(what: str, done: int, total: int) -> None:
        nonlocal shown_at, width
        now = time.monotonic()
        if now - shown_at < _INTERVAL_S and done < total:
            return
        told = f"{what} {done}/{total}" if total > 1 else what
        stream.write(f"\r{told:{width}}")
        stream.flush()
        shown_at, width = now, max(width, len(told))

    try:
        yield show
    finally:
        stream.write(f"\r{'':{width}}\r")
        stream.flush()


def _is_watched(stream: TextIO) -> bool:
    """Whether somebody sees it at once: in a terminal, or in a notebook, whose kernel says so."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return stream.isatty() or type(shell).__name__ == "ZMQInteractiveShell"
