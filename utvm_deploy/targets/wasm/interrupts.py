"""Ctrl-C within a call of compiled code: Python's own handler runs only when the call has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator


class Interrupts:
    """Calls ``stop`` from another thread if Ctrl-C is pressed while a call is watched.

    The system's handler writes the number of each signal to a pipe (``signal.set_wakeup_fd``),
    which a thread reads.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._listeners: list[int] = []  # who had the signals before
        weakref.finalize(self, os.close, self._writer)
        arguments = reader, stop, self._listeners
        threading.Thread(target=_read, args=arguments, daemon=True).start()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """For a call. Only the main thread has signals; calls of others are not interrupted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._listeners[:] = [before] if before >= 0 else []
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)


def _read(reader: int, stop: Callable[[], None], listeners: list[int]) -> None:
    """Until the other end is closed. What came is passed on, to an event loop for example."""
    while came := os.read(reader, 64):
        if signal.SIGINT in came:
            stop()
        for listener in listeners:
            with contextlib.suppress(OSError):
                os.write(listener, came)
    os.close(reader)
