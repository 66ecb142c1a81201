"""Which layers to compute in strips, so that a model takes a smaller arena.

The layers at the peak of memory become part of a chain (``graph/strips.py``). Its estimate counts
what is live: tensors that cross the chain, its windows and its result. What a plan really takes,
scratch included, is known once kernels are chosen. So there are several suggestions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.compiler.budgets import Budget, Goal, Limits, OverBudget, Tradeoff
from utvm_deploy.compiler.planning.pass_costs import moving_cycles, strip_cycles
from utvm_deploy.compiler.planning.planner import Planned, Planner, WholeGraph
from utvm_deploy.graph.input_rows import comes_in_rows
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import consumers, producers
from utvm_deploy.graph.strip_writer import in_strips
from utvm_deploy.graph.strips import Chain, Strips, chain_ends, sums_up
from utvm_deploy.kernels.choose.known_calls import share_calls
from utvm_deploy.targets.contract.costs import CostTable

#: Rows that enter a chain in each strip.
_PACES = (1, 2, 3, 4)
#: Chains of a model.
_MOST_CHAINS = 4
#: Layers of a chain: with more, the search for one takes long.
_LONGEST = 64
#: A chain must lower what its layers need to this share at least.
_WORTHWHILE = 0.97
#: A layer outside of all chains is looked at if it needs this share of the peak.
_HIGH = 0.6
#: Of chains whose peak is within this factor of the least, the shortest is taken.
_NEAR = 1.02
#: A plan without strips is kept if it is at most so much slower than without a budget, as a share.
_LITTLE_LOSS = 0.02
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


@dataclass(frozen=True)
class Suggestion:
    """Chains of a graph, and about how many bytes are live at most with them."""

    chains: tuple[Chain, ...]
    live_bytes: int

    @property
    def layers(self) -> int:
        """How many layers are in its chains, and the rows of an input that comes in rows."""
        return sum(chain.last - chain.first + 1 for chain in self.chains)

    def extra_cycles(self, graph: Graph, table: CostTable) -> float:
        """About how many cycles its strips take more than whole layers."""
        return sum(_extra_cycles(Strips(graph, chain), table) for chain in self.chains)

    def applied(self, graph: Graph) -> Graph:
        """The graph with its chains in strips."""
        # The last one first: positions before it stay as they are.
        for chain in sorted(self.chains, key=lambda one: -one.first):
            graph = in_strips(graph, chain)
        return graph


def suggestions(graph: Graph, whole: Mapping[int, int]) -> list[Suggestion]:
    """Ways to compute a graph in strips; the least live bytes first.

    ``whole`` are the bytes that operators need without strips, by their positions.
    """
    live = _Live(graph, whole)
    found = list[Suggestion]()
    for chains in _with_input(graph, live) if comes_in_rows(graph) else _chosen(graph, live):
        for pace in _PACES:
            paced = tuple(
                replace(one, rows=_rows(graph, one.first, one.last, pace)) for one in chains
            )
            parked = tuple(replace(one, parks=True) for one in paced)
            found.append(Suggestion(paced, live.peak(paced)))
            if live.peak(parked) < live.peak(paced):
                found.append(Suggestion(parked, live.peak(parked)))
    return sorted(found, key=lambda one: (one.live_bytes, len(one.chains)))


def _with_input(graph: Graph, live: _Live) -> Iterator[tuple[Chain, ...]]:
    """Chains that begin with the rows of the input, and those that fit them."""
    for last in chain_ends(graph, 0):
        first = (Chain(0, last, _rows(graph, 0, last, 1)),)
        yield first
        yield from _chosen(graph, live, first)


def _chosen(
    graph: Graph, live: _Live, chains: tuple[Chain, ...] = ()
) -> Iterator[tuple[Chain, ...]]:
    """One chain more each time, around the layer that needs most; with the smallest strips."""
    while len(chains) < _MOST_CHAINS:
        at, most = live.outside(chains)
        if most < _HIGH * live.peak(chains):
            return
        needs = {
            one: max(live.inside(one), live.outside((*chains, one))[1])
            for one in _chains_around(graph, at, chains)
        }
        least = min(needs.values(), default=most)
        if least > _WORTHWHILE * most:
            return
        near = [one for one, need in needs.items() if need <= _NEAR * least]
        chains = (*chains, min(near, key=lambda one: (one.last - one.first, needs[one])))
        yield chains


def _chains_around(graph: Graph, at: int, others: Sequence[Chain]) -> Iterator[Chain]:
    """Chains that contain operator ``at``, or begin behind it, and have none of ``others``."""
    for first in range(min(at + 1, len(graph.operators) - 1), -1, -1):
        if any(one.first <= first <= one.last for one in others):
            continue
        for last in chain_ends(graph, first):
            if any(one.first <= last and first <= one.last for one in others):
                break
            if last - first >= _LONGEST:
                break
            if last >= at:
                yield Chain(first, last, _rows(graph, first, last, 1))


def _rows(graph: Graph, first: int, last: int, pace: int) -> Fraction:
    """The rows of a chain's result for ``pace`` rows of its first output."""
    end = last - 1 if sums_up(graph, first, last) else last
    # Rows of the input are not computed: the pace is that of the first layer that is.
    begin = min(first + 1, end) if comes_in_rows(graph) and first == 0 else first
    heights = [graph.tensors[graph.operators[i].outputs[0]].shape[1] for i in (begin, end)]
    shrinking = max(round(heights[0] / heights[1]), 1)
    return Fraction(pace, shrinking)


def _extra_cycles(strips: Strips, table: CostTable) -> float:
    """What the strips of a chain take more than its layers: calls, and rows that are moved."""
    found, before = 0.0, strips.none
    cycles = [strip_cycles(strips.graph, operator, table) for operator in strips.operators]
    for ends in strips.ends:
        for operator, each in zip(strips.operators, cycles, strict=True):
            output = operator.outputs[0]
            if ends[output] == before[output]:
                continue
            found += each
            if output != strips.result:
                rows = max(before[output] - strips.first_needed(output, before), 0)
                moved = rows * strips.row_bytes(output)
                found += moving_cycles(moved, table) if moved else 0.0
                parked = strips.parked_from(output, before, ends)
                if parked is not None:
                    moved = (ends[output] - parked) * strips.row_bytes(output)
                    found += moving_cycles(moved, table)
        before = ends
    return found


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
        return self._planner.whole(self._graph)

    @cached_property
    def suggestions(self) -> list[Suggestion]:
        """Ways to compute it in strips; the least live bytes first."""
        return suggestions(self._graph, self.whole.live_bytes)

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
            more = 0.0 if most is None else one.extra_cycles(self._graph, self._planner.costs)
            if most is not None and least + more > most:
                continue
            if not number:
                return
            number -= 1
            if limits.ram is not None and self._least.get(one, 0) > limits.ram:
                continue  # it was planned, with any cycles
            self._tell()
            try:
                graph = one.applied(self._graph)
                share_calls(self._graph, graph)
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
        return replace(planned, tradeoff=replace(made, least_bytes=smallest))


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


class _Live:
    """How many bytes are live at the operators of a graph, in chains and outside of them."""

    def __init__(self, graph: Graph, whole: Mapping[int, int]) -> None:
        self._graph = graph
        self._whole = whole
        inputs = [one for one in graph.inputs if not graph.tensors[one].is_outside]
        self._first = dict.fromkeys(inputs, -1) | producers(graph)
        read = consumers(graph)
        self._last = {tensor: max(read.get(tensor, [made])) for tensor, made in self._first.items()}
        self._last |= dict.fromkeys(graph.outputs, len(graph.operators))
        for found, left in graph.states:
            self._first |= {found: -1}
            self._last |= {found: len(graph.operators), left: len(graph.operators)}
        self._of_chain: dict[Chain, int] = {}

    def peak(self, chains: Sequence[Chain]) -> int:
        """The most bytes that are live at once."""
        return max([self.outside(chains)[1], *map(self.inside, chains)])

    def outside(self, chains: Sequence[Chain]) -> tuple[int, int]:
        """The operator that needs most of those in no chain, and its bytes."""
        sizes = (
            (size, position)
            for position, size in self._whole.items()
            if not any(chain.first <= position <= chain.last for chain in chains)
        )
        size, position = max(sizes, default=(0, 0))
        return position, size

    def inside(self, chain: Chain) -> int:
        """The most bytes that are live while a chain is computed."""
        if chain not in self._of_chain:
            strips = Strips(self._graph, chain)
            consumed = {one for one in strips.sources if self._last[one] <= chain.last}
            apart = {*strips.made, *consumed}
            crossing = self._bytes(chain.first, chain.last, apart)
            self._of_chain[chain] = crossing + strips.live_bytes(consumed)
        return self._of_chain[chain]

    def _bytes(self, first: int, last: int, besides: Collection[int]) -> int:
        return sum(
            self._graph.tensors[tensor].size_bytes
            for tensor, made in self._first.items()
            if made <= last and self._last[tensor] >= first and tensor not in besides
        )
