"""Which activations of a train step to compute again, so that it takes a smaller arena.

At the layer that needs most bytes, some activations are only there because gradients need them
later. One of them is given up: that which costs least time for its bytes. This repeats as long as
it helps. So each choice takes fewer bytes and more time than the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from utvm_deploy.base.progress import Progress
from utvm_deploy.compiler.budgets import Budget, Goal, OverBudget, StepPlan, Tradeoff
from utvm_deploy.compiler.planning.planner import Planned, Planner
from utvm_deploy.compiler.planning.streaming import best_plan
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.recomputing import kept_activations, recomputed
from utvm_deploy.kernels.choose.known_calls import share_calls

#: Activations that are tried at one peak.
_MOST_TRIED = 6
#: Choices that are planned to the end within a budget, after the one that keeps everything.
_MOST_PLANNED = 3


@dataclass(frozen=True, eq=False)
class Choice:
    """A graph of a step."""

    graph: Graph
    tensors: frozenset[int]  # that are computed again
    number: int  # of activations; several tensors may share the bytes of one
    extra_cycles: float
    #: Position of each operator behind the first activation that is kept -> bytes needed there.
    needed: Mapping[int, int]

    @cached_property
    def peak(self) -> tuple[int, int]:
        """The most bytes that are needed, and at how many operators."""
        most = max(self.needed.values(), default=0)
        return most, sum(size == most for size in self.needed.values())


def choices(graph: Graph, planner: Planner) -> list[Choice]:
    """Ways to compute a step, from the fastest to the smallest."""
    start = min((one.first for one in kept_activations(graph)), default=len(graph.operators))

    def looked_at(made: Graph, tensors: frozenset[int], number: int, cycles: float) -> Choice:
        behind = {at: size for at, size in planner.needed(made).items() if at > start}
        return Choice(made, tensors, number, cycles, behind)

    def better(now: Choice) -> Choice | None:
        at = max(now.needed, key=now.needed.__getitem__, default=-1)
        open_ = [one for one in kept_activations(now.graph) if one.first < at < one.last]
        costs = {one: planner.operator_cycles(graph, [one.operator]) for one in open_}
        for one in sorted(open_, key=lambda one: costs[one] / one.size_bytes)[:_MOST_TRIED]:
            tensors = now.tensors | {*one.tensors}
            made = recomputed(graph, tensors)
            if made is not None:
                share_calls(graph, made)
                found = looked_at(made, tensors, now.number + 1, now.extra_cycles + costs[one])
                if found.peak < now.peak:
                    return found
        return None

    found = [looked_at(graph, frozenset(), 0, 0.0)]
    while (made := better(found[-1])) is not None:
        found.append(made)
    return found


def best_step(
    graph: Graph, goal: Goal, budget: Budget, planner: Planner, progress: Progress
) -> Planned:
    """The best plan of a train step for ``goal``, as ``best_plan`` has it for other graphs.

    A budget has the fastest choice whose plan fits. Other goals have the smallest arena within the
    time that they may lose. Its tradeoff has all plans that were weighed. Raises OverBudget if
    there is no plan.
    """
    weighed = list[StepPlan]()

    def planned(choice: Choice, fastest: tuple[int, int] | None = None) -> Planned:
        try:
            made = best_plan(choice.graph, goal, budget, planner, progress)
        except OverBudget as error:
            weighed.append(StepPlan(choice.number, 0, error.least_bytes, None))
            raise
        told = _tradeoff(made)
        weighed.extend(replace(one, recomputed=choice.number) for one in told.weighed)
        size, cycles = fastest or (told.fastest_bytes, told.fastest_cycles)
        told = replace(told, fastest_bytes=size, fastest_cycles=cycles, recomputed=choice.number)
        return replace(made, tradeoff=told)

    def with_all(made: Planned) -> Planned:
        return replace(made, tradeoff=replace(_tradeoff(made), weighed=tuple(weighed)))

    ways = choices(graph, planner)
    if goal is not Goal.WITHIN_BUDGET:
        whole = planned(ways[0])
        fastest = _tradeoff(whole).fastest_bytes, _tradeoff(whole).fastest_cycles
        most = fastest[1] * (1 + (goal.loss or 0.0))
        fitting = [one for one in ways[1:] if fastest[1] + one.extra_cycles <= most]
        found = [planned(one, fastest) for one in fitting[-1:]]
        within = [one for one in found if _tradeoff(one).cycles <= most]
        return with_all(min((whole, *within), key=lambda one: _tradeoff(one).arena_bytes))
    most, refused = budget.ram or 0, list[OverBudget]()
    fitting = [one for one in ways[1:] if one.peak[0] <= most]
    for one in dict.fromkeys((ways[0], *fitting[: _MOST_PLANNED - 1], *ways[1:][-1:])):
        try:
            return with_all(planned(one, refused[0].fastest if refused else None))
        except OverBudget as error:
            if not most:
                raise
            refused.append(error)
    least = min(one.least_bytes for one in refused)
    raise OverBudget.of_ram(most, least, refused[0].fastest)


def _tradeoff(made: Planned) -> Tradeoff:
    assert made.tradeoff is not None, "a plan within limits has one"
    return made.tradeoff
