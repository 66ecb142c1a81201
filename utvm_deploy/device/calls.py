"""A call of a function on the device: whether it ran, and its ticks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.workspace_blocks import Block

# Larger numbers are more likely addresses than counts: errors show them as such.
_MIN_ADDRESS = 1 << 20


@dataclass(frozen=True)
class Ticks:
    """What each run of a call took, in order; never empty."""

    all: tuple[int, ...]
    unit: str  # "cycles", "nanoseconds" or "instructions"
    per_second: int

    @property
    def min(self) -> int:
        """The fastest run."""
        return min(self.all)

    @property
    def median(self) -> float:
        """The run in the middle."""
        return statistics.median(self.all)

    @property
    def median_s(self) -> float:
        """The same in seconds of the device's clock."""
        return self.median / self.per_second


class Tensorlike(Protocol):
    """An argument of a function that is not a number: it has an address in memory."""

    @property
    def block(self) -> Block: ...

    def __str__(self) -> str: ...


Argument = Tensorlike | int


class Call:
    """One queued call; reading ``ticks`` runs everything that is queued up to it."""

    def __init__(
        self,
        task: Task,
        name: str,
        arguments: Sequence[object],
        blocks: tuple[Block, ...] = (),
        *,
        is_ours: bool = False,
    ) -> None:
        self.task = task
        self._name = name
        self._arguments = arguments
        #: The arguments that it was given, and so may write.
        self.blocks = blocks
        #: A call of the queue's own, such as filling a red zone; nobody holds it.
        self.is_ours = is_ours
        self._ticks: Ticks | None = None
        self._error: UtvmError | None = None
        self._flush: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "queued" if self._flush else "failed" if self._error else "done"
        return f"<Call {self.text}: {state}>"

    @property
    def text(self) -> str:
        """The call as errors name it."""
        return f"{self._name}({', '.join(map(_argument_text, self._arguments))})"

    @property
    def is_done(self) -> bool:
        """Whether it ran, or will never run."""
        return self._ticks is not None or self._error is not None

    @property
    def error(self) -> UtvmError | None:
        """Why it failed or did not run; None if it ran or waits to run."""
        return self._error

    @property
    def ticks(self) -> Ticks:
        """What each repeat took; raises what the call met if it failed or did not run."""
        if self._flush is not None:
            self._flush()
        if self._error is not None:
            raise self._error
        assert self._ticks is not None
        return self._ticks

    # The rest is the queue's.

    def wait(self, flush: Callable[[], None]) -> None:
        """Note that it is in a queue, which ``flush`` runs."""
        self._flush = flush

    def finish(self, ticks: Ticks) -> None:
        """Note that it ran."""
        self._flush, self._ticks = None, ticks

    def fail(self, error: UtvmError) -> None:
        """Note that it failed, or will never run."""
        self._flush, self._error = None, error


def _argument_text(argument: object) -> str:
    is_address = isinstance(argument, int) and argument >= _MIN_ADDRESS
    return f"{argument:#x}" if is_address else str(argument)
