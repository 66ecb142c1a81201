"""Which layers to compute in strips, so that a model takes a smaller arena.

What a plan really takes, scratch included, is known once kernels are chosen. So several suggestions
(``strip_suggestions.py``) are planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.compiler.arena.arenas import arena_bytes
from utvm_deploy.compiler.budgets import (
    NO_LIMITS,
    Budget,
    Goal,
    Limits,
    OverBudget,
    StepPlan,
    Tradeoff,
)
from utvm_deploy.compiler.planning.planner import Planned, Planner, WholeGraph
from utvm_deploy.compiler.planning.strip_suggestions import WORTHWHILE, Suggestion, suggestions
from utvm_deploy.graph.attributes import BatchMatmul
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.strips.input_rows import comes_in_rows
from utvm_deploy.graph.strips.matrix_rows import attention_in_one_run
from utvm_deploy.kernels.choose.known_calls import share_calls

#: A plan without strips is kept if it is at most so much slower than without a budget, as a share.
_LITTLE_LOSS = 0.02
#: At level time without a limit, strips of attention may cost this share of the cycles.
_CHEAP = 0.01
#: Suggestions that are planned to the end; fewer where only little time may be lost, as at level
#: time.
_MOST_PLANNED, _MOST_PLANNED_FOR_TIME = 5, 2
#: Windows may take the place of rows that are not needed any more. So an arena may have this share
#: of the bytes that a suggestion says.
_LEAST_SHARE = 0.75
#: At level ram, arenas within this factor of the least are as good: the fastest plan is taken.
_AS_SMALL = 1.025
#: At level ram, a plan may be slower than the fastest by this share if that saves much. Its arena
#: then has at most the second share of the best one within the level's loss.
_FURTHER_LOSS, _FURTHER_SHARE = 0.32, 0.8


def best_plan(
    graph: Graph, goal: Goal, budget: Budget, planner: Planner, progress: Progress = no_progress
) -> Planned:
    """The best plan of a graph for ``goal``, with chains in strips where that helps.

    A RAM budget asks for the fastest plan, other goals for the smallest arena. ``progress`` hears
    of each plan, and how many there are at most. Raises OverBudget if there is no plan.
    """
    plans = _Plans(graph, goal, budget, planner, progress)
    plans.make_whole()
    if goal is Goal.WITHIN_BUDGET:
        _within_budget(plans, budget)
    elif goal is Goal.LITTLE_SLOWER:
        quick = [one for one in plans.suggestions if not any(c.parks for c in one.chains)]
        plans.make(quick, Limits(cycles=plans.most_cycles), number=_MOST_PLANNED_FOR_TIME)
    else:
        plans.make(plans.suggestions, Limits(cycles=plans.most_cycles))
    if goal is not Goal.WITHIN_BUDGET and not plans.found and comes_in_rows(graph):
        # Strips cost more than the goal allows: the fastest of them.
        room = Budget(planner.board.main_ram.size)
        return best_plan(graph, Goal.WITHIN_BUDGET, room, planner, progress)
    if goal is Goal.SMALLEST:
        _further(plans)
    return plans.best()


def has_attention(graph: Graph) -> bool:
    """Whether matrices are multiplied, whose rows may be computed in strips."""
    return any(isinstance(one.attributes, BatchMatmul) for one in graph.operators)


def with_cheap_strips(made: Planned, planner: Planner) -> Planned:
    """A plan without limits, or one with attention in strips that hardly cost time."""
    graph = attention_in_one_run(made.graph)
    if not has_attention(graph):
        return made
    most = _CHEAP * planner.cycles(made)[0]
    found = [
        one
        for one in suggestions(graph, planner.whole(graph).live_bytes)
        if all(chain.matrix for chain in one.chains)
        and one.extra_cycles(graph, planner.costs) <= most
    ]
    if not found:
        return made
    enough = _AS_SMALL * found[0].live_bytes
    near = [one for one in found if one.live_bytes <= enough]
    cut = min(near, key=lambda one: one.extra_cycles(graph, planner.costs)).applied(graph)
    share_calls(graph, cut)
    other = planner.plan(cut, NO_LIMITS)
    sizes = [arena_bytes(one.graph, one.chosen.sequence) for one in (other, made)]
    return other if sizes[0] <= WORTHWHILE * sizes[1] else made


def _within_budget(plans: _Plans, budget: Budget) -> None:
    """Plan what may be within a budget."""
    if budget.ram is None:
        plans.make(plans.suggestions, Limits(cycles=budget.cycles))
    elif all(plans.loss(made) > _LITTLE_LOSS for _, made in plans.found):
        fitting = _fitting(plans.suggestions, budget.ram)
        plans.make(fitting, Limits(budget.ram, budget.cycles))


def _further(plans: _Plans) -> None:
    """Plan what saves much for more time, and then the fastest plans with as small an arena."""
    much_smaller = int(_FURTHER_SHARE * plans.smallest)
    further = [one for one in plans.suggestions if one.live_bytes <= much_smaller][:1]
    plans.make(further, Limits(ram=much_smaller), _FURTHER_LOSS)
    # Some bytes alone are not worth much time.
    most_loss = _FURTHER_LOSS if plans.smallest <= much_smaller else Goal.SMALLEST.loss
    fitting = _fitting(plans.suggestions, plans.smallest)[:_MOST_PLANNED_FOR_TIME]
    plans.make(fitting, Limits(ram=plans.smallest), most_loss)


class _Plans:
    """Plans of a graph: with whole layers, and in strips."""

    def __init__(
        self, graph: Graph, goal: Goal, budget: Budget, planner: Planner, progress: Progress
    ) -> None:
        self._graph, self._goal, self._budget, self._planner = graph, goal, budget, planner
        self._in_order = attention_in_one_run(graph)
        self._progress, self._begun = progress, 0
        self.found: list[tuple[Planned, Tradeoff]] = []
        self._refused: list[OverBudget] = []
        #: The smallest arenas that were found for suggestions.
        self._least: dict[Suggestion, int] = {}
        #: Arena and cycles of the fastest plan without a budget.
        self._fastest = (0, 0)

    def make_whole(self) -> None:
        """Plan the graph as it is."""
        self._tell()
        try:
            limits = self._goal.limits(self._budget)
            planned, made = _with_tradeoff(self._planner.plan(self._graph, limits))
        except OverBudget as error:
            self._refused.append(error)
            self._fastest = error.fastest
            return
        self._fastest = made.fastest_bytes, made.fastest_cycles
        if not comes_in_rows(self._graph):  # without strips, the whole input is in the arena
            self.found.append((planned, made))

    @cached_property
    def whole(self) -> WholeGraph:
        """What the graph's layers need and cost without strips."""
        return self._planner.whole(self._in_order)

    @cached_property
    def suggestions(self) -> list[Suggestion]:
        """Ways to compute it in strips; the least live bytes first."""
        return suggestions(self._in_order, self.whole.live_bytes)

    @property
    def smallest(self) -> int:
        """Bytes of the smallest arena found so far, or of the fastest plan."""
        return min([made.arena_bytes for _, made in self.found], default=self._fastest[0])

    def loss(self, made: Tradeoff) -> float:
        """How much slower than the fastest plan one is, as a share."""
        return made.cycles / max(self._fastest[1], 1) - 1

    @property
    def most_cycles(self) -> int:
        """The cycles of a plan that is as much slower than the fastest as the goal allows."""
        return self._slower(self._goal.loss or 0.0)

    def _slower(self, loss: float) -> int:
        return round(self._fastest[1] * (1 + loss))

    def make(
        self,
        some: Sequence[Suggestion],
        limits: Limits,
        most_loss: float | None = None,
        number: int = _MOST_PLANNED,
    ) -> None:
        """Plan a number of suggestions within ``limits`` that may be better than what was found.

        Plans that are slower than the fastest one by more than ``most_loss`` are dropped.
        """
        limits = replace(limits, fastest=self._fastest)
        least = sum(layer.cycles for layer in self.whole.layers.values())
        most = limits.cycles if most_loss is None else self._slower(most_loss)
        for one in some:
            if limits.ram is None and _LEAST_SHARE * one.live_bytes >= self.smallest:
                continue
            more = 0.0 if most is None else one.extra_cycles(self._in_order, self._planner.costs)
            if most is not None and least + more > most:
                continue
            if not number:
                return
            number -= 1
            if limits.ram is not None and self._least.get(one, 0) > limits.ram:
                continue  # it was planned, with any cycles
            self._tell()
            try:
                graph = one.applied(self._in_order)
                share_calls(self._in_order, graph)
                plan = self._planner.plan(graph, limits, self.whole.layers)
            except OverBudget as error:
                self._refused.append(error)
                self._least[one] = error.least_bytes
                continue
            planned, made = _with_tradeoff(plan)
            self._least[one] = made.least_bytes
            if most is None or made.cycles <= most:
                self.found.append((planned, replace(made, streamed=one.layers)))

    def _tell(self) -> None:
        """Say which plan begins."""
        self._begun += 1
        what = f"planning the memory of {self._graph.name}: plan"
        self._progress(what, self._begun, _most_plans(self._goal))

    def best(self) -> Planned:
        """The best plan that was found. Raises OverBudget if none was."""
        least = [made.least_bytes for _, made in self.found]
        smallest = min([*least, *(one.least_bytes for one in self._refused)])
        if not self.found:
            if self._budget.ram is None:
                raise self._refused[0]
            raise OverBudget.of_ram(self._budget.ram, smallest, self._fastest)
        found = self.found
        if self._goal is Goal.SMALLEST:
            enough = _AS_SMALL * min(made.arena_bytes for _, made in found)
            found = [one for one in found if one[1].arena_bytes <= enough]
        is_for_time = self._budget.ram is not None and self._budget.cycles is None
        is_for_time |= self._goal is Goal.SMALLEST
        planned, made = min(found, key=lambda one: _merit(one[1], is_for_time))
        told = replace(made, least_bytes=smallest)
        if self._graph.training is not None:
            weighed = ((0, one.streamed, one.arena_bytes, one.cycles) for _, one in self.found)
            told = replace(told, weighed=tuple(StepPlan(*one) for one in weighed))
        return replace(planned, tradeoff=told)


def _most_plans(goal: Goal) -> int:
    """How many plans are made for a goal at most."""
    if goal is Goal.LITTLE_SLOWER:
        return 1 + _MOST_PLANNED_FOR_TIME
    further = 1 + _MOST_PLANNED_FOR_TIME if goal is Goal.SMALLEST else 0
    return 1 + _MOST_PLANNED + further


def _with_tradeoff(planned: Planned) -> tuple[Planned, Tradeoff]:
    assert planned.tradeoff is not None, "a plan within limits has one"
    return planned, planned.tradeoff


def _fitting(found: Sequence[Suggestion], most_bytes: int) -> list[Suggestion]:
    """The suggestions that may be within a RAM budget."""
    fitting = [one for one in found if one.live_bytes <= most_bytes]
    # Those that just fit have the largest strips, and so the fewest calls.
    some = [*fitting[::-1][: _MOST_PLANNED - 1], *(fitting or found)[:1]]
    return list(dict.fromkeys(some))


def _merit(made: Tradeoff, is_for_time: bool) -> tuple[int, int]:
    by_size = made.arena_bytes, made.cycles
    return by_size[::-1] if is_for_time else by_size
