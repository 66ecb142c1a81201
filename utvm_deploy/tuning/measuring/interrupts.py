"""Lets Ctrl-C stop work only where it may: an exception inside TVM's C++ code ends the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """Holds Ctrl-C back until ``check``; a context manager. A second Ctrl-C is not held back.

    ``told`` is called at once, in the main thread. In other threads, which get no signals, and
    where somebody else handles Ctrl-C, this does nothing.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._came = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._hold)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._restore()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came."""
        if self._came:
            self._came = False
            raise KeyboardInterrupt

    def _hold(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        self._restore()
        self._told()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
