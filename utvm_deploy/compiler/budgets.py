"""What a compiled model may take, and what a choice of kernels came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from operator import index
from typing import SupportsIndex

from utvm_deploy.base.errors import CompileError


def check_size(what: str, value: object) -> None:
    """Raise CompileError unless a size that a user gave is an integer above 0."""
    if not isinstance(value, SupportsIndex) or index(value) <= 0:
        raise CompileError(f"{what} is {value!r}; give an integer above 0")


@dataclass(frozen=True)
class Budget:
    """The most that a user grants; None sets no limit.

    ``ram`` is of the arena, in bytes. ``cycles`` are by records and by estimate
    (``kernel_costs.py``).
    """

    ram: int | None = None
    cycles: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("RAM budget", self.ram), ("cycle budget", self.cycles)):
            if value is not None:
                check_size(f"the {what}", value)

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return (self.ram, self.cycles) != (None, None)


NO_BUDGET = Budget()


@dataclass(frozen=True)
class Limits:
    """What one plan must keep; None sets no limit.

    ``ram`` and ``cycles`` are as in a ``Budget``. ``loss`` is how much slower than the fastest
    plan this one may be, as a share. ``fastest`` are the bytes and cycles of that plan where they
    are known.
    """

    ram: int | None = None
    cycles: int | None = None
    loss: float | None = None
    fastest: tuple[int, int] | None = None


NO_LIMITS = Limits()


class Goal(Enum):
    """What the search over plans looks for."""

    FASTEST = "the fastest kernels whose scratch hardly enlarges the arena"
    WITHIN_BUDGET = "the best plan within a budget"
    LITTLE_SLOWER = "the smallest arena that hardly costs time"
    SMALLEST = "the smallest arena"

    @property
    def loss(self) -> float | None:
        """How much slower than the fastest plan another one may be, as a share."""
        return _LOSSES.get(self)

    def limits(self, budget: Budget) -> Limits:
        """What a plan of whole layers must keep."""
        return Limits(budget.ram, budget.cycles, self.loss)


_LOSSES = {Goal.LITTLE_SLOWER: 0.02, Goal.SMALLEST: 0.2}


@dataclass(frozen=True)
class FlashPlan:
    """A plan of kernels: about its cycles, and its bytes of kernels and their tables in flash."""

    rate: float  # the least flash rate that has it
    cycles: int
    flash_bytes: int
    is_chosen: bool
    most_rate: float  # and the highest

    @property
    def rates(self) -> str:
        """The flash rates that have it."""
        only = f"{self.rate:g}"
        return only if self.most_rate == self.rate else f"{only} to {self.most_rate:g}"


class OverBudget(CompileError):
    """No plan is within the budget.

    ``least_bytes`` is the smallest arena that was found, ``fastest`` the bytes and predicted cycles
    of the fastest plan without a budget.
    """

    def __init__(self, message: str, least_bytes: int, fastest: tuple[int, int]) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes
        self.fastest = fastest

    @classmethod
    def of_ram(cls, ram: int, least_bytes: int, fastest: tuple[int, int]) -> OverBudget:
        """No arena is within a RAM budget."""
        return cls(
            f"the RAM budget is {ram:,} bytes, and the least possible arena has "
            f"{least_bytes:,}; give a budget of at least that",
            least_bytes,
            fastest,
        )

    @classmethod
    def of_cycles(
        cls, limits: Budget | Limits, cycles: float, unit: str, least: tuple[int, tuple[int, int]]
    ) -> OverBudget:
        """No plan is within a budget of cycles; ``least`` are the error's other figures."""
        within = " within the RAM budget" if limits.ram is not None else ""
        return cls(
            f"the cycle budget is {limits.cycles:,}, and the fastest plan{within} takes "
            f"{round(cycles):,} {unit} by the records; give a budget of at least that",
            *least,
        )


@dataclass(frozen=True)
class StepPlan:
    """A plan of a train step that was weighed; one that is over the budget has no cycles."""

    recomputed: int  # activations that are computed again
    streamed: int  # layers in strips of rows
    arena_bytes: int
    cycles: int | None


@dataclass(frozen=True)
class Tradeoff:
    """What was chosen, next to what could have been: bytes of arena, and predicted cycles."""

    arena_bytes: int
    cycles: int
    fastest_bytes: int
    fastest_cycles: int
    least_bytes: int
    # The share of the cycles that was measured, from 0 to 1.
    measured: float
    # Layers that are computed in strips of rows.
    streamed: int = 0
    # Of the cycles: "instructions" if nobody counted what kernels cost on the core.
    unit: str = field(default="cycles", metadata={"is_added": True})
    # Activations of a train step that are computed again.
    recomputed: int = field(default=0, metadata={"is_added": True})
    weighed: tuple[StepPlan, ...] = field(default=(), metadata={"is_added": True})

    @property
    def text(self) -> str:
        """What the budget cost, in one sentence."""
        strips = f" {self.streamed} layers are computed in strips of rows." if self.streamed else ""
        if self.recomputed:
            strips += f" Activations computed again for gradients: {self.recomputed}."
        slower = max(self.cycles / max(self.fastest_cycles, 1) - 1, 0.0)
        return (
            f"the arena has {self.arena_bytes:,} bytes; the fastest plan has "
            f"{self.fastest_bytes:,}, the smallest {self.least_bytes:,}. This "
            f"plan is about {slower:.1%} slower than the fastest (by records for "
            f"{self.measured:.0%} of its time, else by an estimate in {self.unit}).{strips}"
        )
