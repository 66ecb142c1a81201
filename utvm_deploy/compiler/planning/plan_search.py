"""The kernels of a model within a budget: the fastest plan that fits, or the smallest in time.

For a limit of bytes, each layer takes its fastest kernel whose scratch fits next to what is live.
So the time falls as the limit grows, and one search over the limits answers all questions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from utvm_deploy.compiler.arena.arenas import Arenas, refilled
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.budgets import Limits, OverBudget, Tradeoff
from utvm_deploy.compiler.planning.kernel_costs import KernelCosts, Option
from utvm_deploy.graph.model import Graph

Sequenced = tuple[Step | View, ...]
#: Of each step, the position of one of its options.
_Choices: TypeAlias = tuple[int, ...]
#: Plans of limits next to the least possible one that are made to find a small arena.
MOST_PLANS = 8
#: Sequences with more steps than this, such as those with strips, get a third of these plans.
MANY_STEPS = 64
#: With more steps, placements are hardly luck: scratch that has less room makes no smaller arena.
MOST_PLACED = 512


@dataclass(frozen=True)
class _Plan:
    options: tuple[Option, ...]
    arena_bytes: int

    @cached_property
    def cycles(self) -> float:
        return sum(one.cycles for one in self.options)

    @property
    def merit(self) -> tuple[int, float]:
        return self.arena_bytes, self.cycles


def within_limits(
    graph: Graph,
    sequence: Sequence[Step | View],
    costs: KernelCosts,
    scratch_of: Callable[[Step], tuple[int, ...]],
    limits: Limits,
    room: int,
) -> tuple[Sequenced, Tradeoff]:
    """The sequence with the kernels of the best plan within ``limits``, and what that cost.

    ``room`` are the bytes that the board has for the arena. Raises OverBudget with the least that
    is possible if no plan is within them.
    """
    search = _Search(graph, sequence, costs, scratch_of)
    found, free = None, limits.fastest
    if free is None:
        found = search.fastest_within(room) or search.smallest()
        free = found.arena_bytes, round(found.cycles)
    most = math.inf if limits.cycles is None else limits.cycles
    if limits.loss is not None and found is not None:
        most = found.cycles * (1 + limits.loss)
    if limits.ram is not None:
        found = search.fastest_within(limits.ram)
        # First for the layers that cannot fit otherwise, then for all: blocks may fit, and yet no
        # placement be found.
        for needing in (limits.ram, 0):
            if found is None:
                search.add_plain(needing)
                found = search.fastest_within(limits.ram)
        if found is None:
            raise OverBudget.of_ram(limits.ram, search.smallest().arena_bytes, free)
    cycles = search.least_cycles if found is None else found.cycles
    if cycles > most:
        figures = search.smallest().arena_bytes, free
        asked = replace(limits, cycles=round(most))
        raise OverBudget.of_cycles(asked, cycles, costs.table.unit, figures)
    if found is None or most < math.inf:
        found = search.smallest_within(most, found)
    least = search.smallest(found)
    measured = sum(one.cycles for one in found.options if one.is_measured)
    tradeoff = Tradeoff(
        found.arena_bytes,
        round(found.cycles),
        *free,
        least.arena_bytes,
        measured / found.cycles if found.cycles else 0.0,
        unit=costs.table.unit,
    )
    return search.sequence_of(found, limits), tradeoff


class _Search:
    """The plans of a sequence, by limits of bytes."""

    def __init__(
        self,
        graph: Graph,
        sequence: Sequence[Step | View],
        costs: KernelCosts,
        scratch_of: Callable[[Step], tuple[int, ...]],
    ) -> None:
        self._sequence, self._costs, self._scratch_of = sequence, costs, scratch_of
        self._steps = [item for item in sequence if isinstance(item, Step)]
        self._arenas = Arenas(graph, sequence)
        self._known_needs: list[list[int]] | None = None
        # Fewer where each takes long.
        self._most_plans = MOST_PLANS if len(self._steps) <= MANY_STEPS else MOST_PLANS // 3
        self._options = [self._useful(i, costs.options(step)) for i, step in enumerate(self._steps)]
        self._made: dict[_Choices, _Plan] = {}
        #: Choices whose arena takes more than that many bytes.
        self._too_large: dict[_Choices, float] = {}
        self._has_plain = False

    def _with_scratch(self, step: Step) -> Step:
        return replace(step, scratch_bytes=self._scratch_of(step))

    def add_plain(self, most_bytes: int) -> None:
        """Add plain C to the options of layers that none of their kernels lets fit."""
        for index, step in enumerate(self._steps):
            options = self._options[index]
            least = min(self._need(index, one) for one in options)
            plain = self._costs.plain(step)
            # To know its scratch, it must be lowered. That is slow.
            if least <= max(most_bytes, self._arenas.needed(index, plain)):
                continue
            self._known_needs, self._has_plain = None, True
            plain = self._with_scratch(plain)
            cycles = self._costs.table.portable_factor * min(one.cycles for one in options)
            made = Option(plain, sum(plain.scratch_bytes), cycles, is_measured=False)
            self._options[index] = [*options, made]

    def fastest_within(self, most_bytes: int) -> _Plan | None:
        """The fastest plan of at most that many bytes; None if there is none."""
        limits = [limit for limit in self._limits() if limit <= most_bytes][::-1]
        if not limits or not self._may_be_smaller(most_bytes + 1):
            return None
        some = self._some(range(len(limits)))
        for before, place in zip([-1, *some], some, strict=False):
            plan = self._planned(self._chosen(limits[place]), most_bytes)
            if plan is not None:
                return self._fastest_between(limits[before + 1 : place], most_bytes) or plan
        # What is live fits, and yet no placement was found in which it does.
        for limit in limits[-1:]:
            for count in self._some(range(1, len(self._steps) + 1)):
                plan = self._planned(self._chosen(limit, count), most_bytes)
                if plan is not None:
                    return plan
        smallest = self.smallest()
        return smallest if smallest.arena_bytes <= most_bytes else None

    def _fastest_between(self, limits: Sequence[int], most_bytes: int) -> _Plan | None:
        """The fastest plan that halving falling ``limits`` finds; None if none of them fits."""
        found = None
        while limits:
            middle = len(limits) // 2
            plan = self._planned(self._chosen(limits[middle]), most_bytes)
            found = found if plan is None else plan
            limits = limits[middle + 1 :] if plan is None else limits[:middle]
        return found

    @property
    def least_cycles(self) -> float:
        """Of the fastest kernels."""
        return self._cycles(self._chosen(self._limits()[-1]))

    def smallest_within(self, most_cycles: float, known: _Plan | None) -> _Plan:
        """The smallest plan that takes at most that many cycles; at worst ``known``."""
        limits = self._limits_within(most_cycles)
        tried = [self._chosen(limit) for limit in limits[: self._most_plans]]
        # What is live may fit, and yet no placement be found in which it does. Then room in the
        # tightest layers helps, if room in all layers does.
        best = self._smallest(tried, known, most_cycles)
        counts = self._some(range(1, len(self._steps) + 1))
        for limit in limits[:1] if self._may_be_smaller(best.arena_bytes) else ():
            tried = [self._chosen(limit, count) for count in counts]
            best = self._smallest(tried, best, most_cycles)
        # Where placement takes more than what is live, faster kernels may fit, too.
        fitting = [limit for limit in limits if limit <= best.arena_bytes]
        tried = [self._chosen(limit) for limit in (*fitting[-1:], limits[-1])]
        return self._smallest(tried, best, most_cycles)

    def _may_be_smaller(self, than_bytes: int) -> bool:
        """Whether the least scratch makes a smaller arena; few steps may have one all the same."""
        few = len(self._steps) <= MOST_PLACED
        return few or self._planned(self._chosen(0), than_bytes - 1) is not None

    def smallest(self, known: _Plan | None = None) -> _Plan:
        """The smallest plan that was found, or ``known`` if that is no larger."""
        # The layers that are not at the peak keep their kernels.
        limits = [0, *self._limits()[: self._most_plans]]
        return self._smallest([self._chosen(limit) for limit in limits], known)

    def _smallest(
        self, tried: Iterable[_Choices], known: _Plan | None, most_cycles: float = math.inf
    ) -> _Plan:
        """The smallest plan, and of equal ones the fastest; the first one of those."""
        best = known
        for chosen in tried:
            cycles = self._cycles(chosen)
            if cycles > most_cycles:
                continue
            if best is None:
                best = self._planned(chosen)
                continue
            # Nothing is placed that cannot be better.
            if (self._arenas.least_bytes(self._sized(chosen)), cycles) < best.merit:
                made = self._planned(chosen, best.arena_bytes)
                best = min(best, made or best, key=lambda plan: plan.merit)
        assert best is not None, "without a limit, there is a placement"
        return best

    def sequence_of(self, plan: _Plan, limits: Limits) -> Sequenced:
        """The sequence with a plan's kernels, which say why they are not the fastest."""
        why = "the fastest kernel is not taken: its scratch is over the budget"
        if limits.ram is None:
            why = "the fastest kernel is not taken: its scratch would make the arena larger"
        steps = []
        for step, option, options in zip(self._steps, plan.options, self._options, strict=True):
            other = replace(option.step, scratch_bytes=())
            fastest = min(options, key=lambda one: one.cycles)
            if other.call.kernel != step.call.kernel and option.cycles > fastest.cycles:
                more = round(option.cycles - fastest.cycles)
                less = fastest.scratch_bytes - option.scratch_bytes
                told = f"{why} (about {more:,} {self._costs.table.unit} for {less:,} bytes)"
                other = replace(other, call=replace(other.call, why_not=told))
            steps.append(other)
        return refilled(self._sequence, steps)

    def _need(self, index: int, option: Option) -> int:
        """The bytes that are live in a step with this kernel, scratch included."""
        return self._arenas.needed(index, option.step) + option.scratch_bytes

    def _useful(self, index: int, options: Sequence[Option]) -> list[Option]:
        """Those that no other one beats in both cycles and bytes, the fastest first.

        Of equal ones, the first in ``options`` stays: the step as it is.
        """
        kept, least = list[Option](), None
        for one in sorted(options, key=lambda o: (o.cycles, o.scratch_bytes)):
            need = self._need(index, one)
            if least is None or need < least:
                kept.append(replace(one, step=self._with_scratch(one.step)))
                least = need
        return kept

    def _needs(self) -> list[list[int]]:
        """Of each step and option."""
        if self._known_needs is None:
            self._known_needs = [
                [self._need(index, one) for one in options]
                for index, options in enumerate(self._options)
            ]
        return self._known_needs

    def _limits_within(self, most_cycles: float) -> list[int]:
        """The limits within which the layers take at most that many cycles."""
        limits = self._limits()
        if self._has_plain:
            return [one for one in limits if self._cycles(self._chosen(one)) <= most_cycles]
        # The layers become faster as the limit grows.
        slower = bisect_left(
            limits, True, key=lambda limit: self._cycles(self._chosen(limit)) <= most_cycles
        )
        return limits[slower:]

    def _limits(self) -> list[int]:
        """Every limit at which some layer gets another kernel, from the least possible one on."""
        needs = self._needs()
        least = max(min(some) for some in needs)
        return sorted({one for some in needs for one in some if one >= least})

    def _some(self, limits: Sequence[int]) -> list[int]:
        """A few of many limits: the first ones, and others at growing distances."""
        found, place, distance = [], 0, 1
        while place < len(limits):
            found.append(limits[place])
            distance = 1 if len(found) < self._most_plans else 2 * distance
            place += distance
        return found

    def _chosen(self, limit: int, tightest: int = 0) -> tuple[int, ...]:
        """Of each layer, the fastest option within the limit, or else that with the least scratch.

        The ``tightest`` layers with the least room have that with the least scratch in any case.
        """
        taken = self._needs()
        chosen = []
        for needs in taken:
            least = needs.index(min(needs))
            fits = (i for i, need in enumerate(needs) if need <= limit)
            chosen.append((next(fits, least), least))
        if not tightest:
            return tuple(fastest for fastest, _ in chosen)
        order = sorted(range(len(chosen)), key=lambda i: -taken[i][chosen[i][0]])
        narrow = set(order[:tightest])
        return tuple(pair[i in narrow] for i, pair in enumerate(chosen))

    def _options_of(self, chosen: _Choices) -> tuple[Option, ...]:
        return tuple(some[i] for some, i in zip(self._options, chosen, strict=True))

    def _cycles(self, chosen: _Choices) -> float:
        return sum(one.cycles for one in self._options_of(chosen))

    def _sized(self, chosen: _Choices) -> list[Step]:
        """The steps with the bytes of their scratch."""
        return [one.step for one in self._options_of(chosen)]

    def _planned(self, chosen: _Choices, most_bytes: float = math.inf) -> _Plan | None:
        """The plan with these options; None if its arena takes more than that many bytes."""
        if chosen not in self._made:
            if self._too_large.get(chosen, -math.inf) >= most_bytes:
                return None
            below = None if most_bytes == math.inf else int(most_bytes) + 1
            arena = self._arenas.bytes_below(below, self._sized(chosen))
            if arena is None:
                self._too_large[chosen] = most_bytes
                return None
            self._made[chosen] = _Plan(self._options_of(chosen), arena)
        plan = self._made[chosen]
        return plan if plan.arena_bytes <= most_bytes else None
