"""The form of the sequences of instructions that `utvm silicon` counts on a target's cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: Repetitions of a sequence in its two functions; the difference counts. Nine instructions so often
#: fit into one way of an instruction cache of 4 KiB, which leaves the other to the runtime.
SHORT, LONG = 16, 48
#: Turns of a loop.
LOOP_SHORT, LOOP_LONG = 100, 300
#: Bytes of the stack that the cases' two pointers point to. The stack is in a board's fastest RAM.
FIRST_BYTES, SECOND_BYTES = 2048, 512


@dataclass(frozen=True)
class Case:
    """One sequence, repeated back to back; cycles for one repetition."""

    name: str
    body: str  # instructions, separated by ";"
    cycles: float
    source: str
    # Which of the model's figures is compared: core, or rich where addresses decide.
    figure: str = "core"
    setup: str = ""
    # Why model and measurement differ, where they are known to.
    exception: str = ""
    # The body is a whole loop, with label 1 at its start and r12 as its counter.
    is_loop: bool = False
    # Accesses memory behind the data cache; left out on a board without one. Each repetition moves
    # on by WAY bytes, the size of one of the cache's ways, so that every access misses.
    is_cached: bool = False

    @property
    def needs_fpu(self) -> bool:
        """Whether an instruction is one of the floating-point unit."""
        return any(part.strip().startswith("v") for part in self.body.split(";"))


@dataclass(frozen=True)
class Cached:
    """Memory behind a data cache, for the cases that need some."""

    way_bytes: int  # of one of the cache's ways
    first: int  # two addresses, each of ``cached_bytes``
    second: int


@dataclass(frozen=True)
class Sequences:
    """What is known of a target's cores, and how to count it."""

    #: The cases for each core whose timing is published.
    cases: Mapping[str, Sequence[Case]]
    #: Assembly with the functions ``case_N_short`` and ``case_N_long`` for each case.
    assembly: Callable[[Sequence[Case], Cached | None], str]
