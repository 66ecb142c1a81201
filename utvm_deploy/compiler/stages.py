"""The stages of a compilation: each is timed, logged, and can be dumped.

A stage's time is what it takes itself. Where a stage needs the work of another one (planning
memory makes kernels and plans arenas), that work counts for the other stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from utvm_deploy.compiler.options import STAGES

_log = logging.getLogger(__name__)
_Made = TypeVar("_Made")

#: ``dump(stage, text)`` is called with what each stage made.
Dump = Callable[[str, str], None]


class Stages:
    """Runs the stages of one compilation one by one; ``seconds`` are those of each."""

    def __init__(self, dump: Dump | None) -> None:
        self._dump = dump
        self._clock = _Clock()

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each stage, in the order of ``STAGES``."""
        return {name: self._clock.seconds.get(name, 0.0) for name in STAGES}

    def run(self, name: str, work: Callable[[], _Made], text: Callable[[_Made], str]) -> _Made:
        """Do the work of a stage, and dump what it made as ``text`` has it."""
        token = _running.set(self._clock)
        try:
            with part_of(name):
                made = work()
        finally:
            _running.reset(token)
        self.told(name, lambda: text(made))
        return made

    def told(self, name: str, text: Callable[[], str]) -> None:
        """Log and dump a stage that was done as part of another one."""
        _log.info("%s: %.2f s", name, self.seconds[name])
        if self._dump is not None:
            self._dump(name, text())


@contextmanager
def part_of(stage: str) -> Iterator[None]:
    """Count the block's time for ``stage``, not for the stage around it.

    Also a decorator. Outside of a compilation it does nothing.
    """
    clock = _running.get()
    if clock is None:
        yield
        return
    clock.enter(stage)
    try:
        yield
    finally:
        clock.leave()


class _Clock:
    """The time of the innermost stage that runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    def enter(self, stage: str) -> None:
        self._count()
        self._open.append(stage)

    def leave(self) -> None:
        self._count()
        self._open.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        if self._open:
            stage = self._open[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


_running: ContextVar[_Clock | None] = ContextVar("running", default=None)
