"""Which candidates to try next: where most time could be gained, near candidates that are known to
be good.

Small spaces are tried completely, as far as trials allow. In large spaces, a new candidate usually
differs little from one of the best, and sometimes is drawn from the whole space. Kernels with
sketches also have an infinite space, in which another search proposes candidates. Nothing here runs
a candidate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.searching.sketches import Sketches

#: The gain that is expected of a kernel before any measurement, as a share of its time.
HOPED_GAIN = 0.3
#: The expected gain is multiplied by this after each trial that gained nothing.
PATIENCE = 0.9
#: The share of candidates that are drawn from the whole space instead of near the best.
EXPLORE = 0.25
#: The number of best candidates that new candidates are derived from.
PARENTS = 3
_OTHER_FAMILY = 100
#: The share of trials for listed candidates while there are proposals, too.
LISTED = 0.3
#: The search for proposals ends if the first ones, this many, all take longer than the best
#: candidate of another family, times the factor.
FEWEST_PROPOSED = 12
HOPELESS = 1.5


@dataclass(eq=False)
class KernelState:
    """What is known about one kernel."""

    work: Work
    measured: dict[Candidate, Measurement] = field(default_factory=dict)
    # Under way, or tried without success on this device.
    pending: set[Candidate] = field(default_factory=set)
    # Worth a try before others: what won for similar shapes.
    hints: list[Candidate] = field(default_factory=list)
    trials_in_vain: int = 0
    # None where everything is listed, or nothing more is found.
    free: Sketches | None = None
    proposed: list[Candidate] = field(default_factory=list)
    # What a compile without the user's records takes; None: the default.
    first: Candidate | None = None
    _best: tuple[Candidate, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._best = self._found_best()

    def add(self, candidate: Candidate, measurement: Measurement) -> None:
        """A result."""
        before = self.best
        self.pending.discard(candidate)
        self.measured[candidate] = measurement
        self._best = self._found_best()
        if self.free is not None:
            self.free.learn(candidate, measurement)
        if not measurement.is_ok or (before and before[1] <= measurement.ticks_min):
            self.trials_in_vain += 1
        else:
            self.trials_in_vain = 0

    @property
    def best(self) -> tuple[Candidate, int] | None:
        """The fastest candidate that computes the right thing, and its ticks."""
        return self._best

    def _found_best(self) -> tuple[Candidate, int] | None:
        right = [(m.ticks_min, i, c) for i, (c, m) in enumerate(self.measured.items()) if m.is_ok]
        if not right:
            return None
        ticks, _, candidate = min(right)
        return candidate, ticks

    @property
    def default_ticks(self) -> int | None:
        """What the best family chooses by itself takes this long; None if it was not measured."""
        found = self.measured.get(self.work.default)
        return found.ticks_min if found is not None and found.is_ok else None

    @property
    def before(self) -> Candidate:
        """What a compile without the user's records takes."""
        return self.first or self.work.default

    @property
    def before_ticks(self) -> int | None:
        """What that takes; None if it was not measured."""
        found = self.measured.get(self.before)
        return found.ticks_min if found is not None and found.is_ok else None

    @property
    def gain(self) -> float:
        """The ticks without the records over those of the best candidate, each measured alone."""
        best, before = self.best, self.before_ticks
        return before / best[1] if best and before and best[1] else 1.0

    def untried(self) -> list[Candidate]:
        """Candidates that were not tried: those of the space in its order, then proposals."""
        return list(dict.fromkeys(self._untried()))

    def _untried(self) -> Iterator[Candidate]:
        """The same candidates; some may come twice."""
        known = chain((self.before,), self.work.candidates, self.hints, self.proposed)
        return (c for c in known if c not in self.measured and c not in self.pending)

    @property
    def untried_count(self) -> int:
        """How many of the list are left, about; for estimates."""
        return max(len(self.work.candidates) - len(self.measured) - len(self.pending), 0)

    @property
    def is_open(self) -> bool:
        """Whether there is, or may be, something left to try."""
        return self.free is not None or any(True for _ in self._untried())

    def drop_hopeless(self) -> None:
        """End the search of proposals if another family has proved to be much faster."""
        best = self.best
        listed = set(self.work.candidates)
        if self.free is None or best is None or best[0] not in listed:
            return
        proposed = [m for c, m in self.measured.items() if c not in listed]
        right = [m.ticks_min for m in proposed if m.is_ok]
        is_known = len(proposed) >= FEWEST_PROPOSED
        is_generic = best[0].family == GENERIC
        if is_known and not is_generic and min(right, default=math.inf) > HOPELESS * best[1]:
            self.free, self.proposed = None, []

    def refill(self) -> None:
        """Ask for proposals if none are left."""
        open_ones = [c for c in self.proposed if c not in self.measured and c not in self.pending]
        if self.free is None or open_ones:
            return
        found = self.free.propose()
        self.proposed = [c for c in found if c not in self.measured and c not in self.pending]
        if not found:
            self.free = None

    def hope(self, total: float) -> float:
        """Ticks that the next trial may save; ``total`` replaces ticks that are not known yet."""
        best = self.best
        if best is None:
            return total / (1 + len(self.pending))
        tries = self.trials_in_vain + len(self.pending)
        return self.work.layers * best[1] * HOPED_GAIN * PATIENCE**tries


class Search:
    """Picks candidates; equal seeds and results give equal picks."""

    def __init__(self, states: Sequence[KernelState], seed: int) -> None:
        self.states = states
        self._random = random.Random(seed)

    def next_batch(self, count: int, in_a_row: int = 1) -> list[tuple[KernelState, Candidate]]:
        """Up to ``count`` candidates that were not tried; none if all were tried.

        ``in_a_row`` candidates are of one kernel, for devices that load its tables slowly.
        """
        batch: list[tuple[KernelState, Candidate]] = []
        # No result comes meanwhile.
        total = sum(s.work.layers * s.best[1] for s in self.states if s.best) or 1.0
        open_states = [state for state in self.states if state.is_open]
        while len(batch) < count and open_states:
            state = max(open_states, key=lambda one: one.hope(total))
            for _ in range(min(in_a_row, count - len(batch))):
                candidate = self._pick(state)
                if candidate is None:
                    break
                state.pending.add(candidate)
                batch.append((state, candidate))
            if not state.is_open:
                open_states.remove(state)
        return batch

    def _pick(self, state: KernelState) -> Candidate | None:
        untried = state.untried()
        for wanted in (state.before, state.work.default, *_first_of_families(state), *state.hints):
            if wanted in untried:
                return wanted
        state.drop_hopeless()
        if state.free is not None:
            listed = [c for c in state.work.candidates if c in untried]
            if listed and self._random.random() < LISTED:
                return self._near_best(state, listed)
            state.refill()
            proposed = [c for c in state.proposed if c in state.untried()]
            if proposed:
                return proposed[0]
            untried = listed
        return self._near_best(state, untried) if untried else None

    def _near_best(self, state: KernelState, untried: Sequence[Candidate]) -> Candidate:
        ranked = sorted(
            ((m.ticks_min, i, c) for i, (c, m) in enumerate(state.measured.items()) if m.is_ok)
        )
        if not ranked or self._random.random() < EXPLORE:
            return self._random.choice(untried)
        parents = [candidate for _, _, candidate in ranked[:PARENTS]]
        parent = self._random.choice(parents)
        nearest = min(difference(parent, candidate) for candidate in untried)
        return self._random.choice([c for c in untried if difference(parent, c) == nearest])


def difference(one: Candidate, other: Candidate) -> int:
    """In how many choices two candidates differ."""
    if one.family != other.family:
        return _OTHER_FAMILY
    mine, theirs = dict(one.choices), dict(other.choices)
    return sum(mine.get(name) != theirs.get(name) for name in mine.keys() | theirs.keys())


def _first_of_families(state: KernelState) -> Iterable[Candidate]:
    """What each family would choose by itself."""
    seen: Collection[str] = {c.family for c in (*state.measured, *state.pending)}
    return [c for c in state.work.candidates if c.family not in seen]
