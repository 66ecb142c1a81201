"""A value that all threads share, and that is made again only after some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Threads may share it: one makes the value, the others take the one before meanwhile."""

    def __init__(self, make: Callable[[], T], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._lock = threading.Lock()
        self._value: tuple[float, T] | None = None

    def get(self) -> T:
        """The value. Raises what making it raises."""
        # Only the first value is waited for.
        if self._lock.acquire(blocking=self._value is None):
            try:
                if self._value is None or time.monotonic() - self._value[0] >= self._seconds:
                    made = self._make()
                    self._value = time.monotonic(), made
            finally:
                self._lock.release()
        assert self._value is not None
        return self._value[1]
