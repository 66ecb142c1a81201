"""The kernels of a graph on a board: by records, as far as memory has room for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from utvm_deploy.backends.choice import Either, TheirCalls
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.arenas import Layout
from utvm_deploy.compiler.arena.plan import Step, View, is_view
from utvm_deploy.compiler.arena.views import with_views
from utvm_deploy.compiler.budgets import NO_LIMITS, FlashPlan, Limits, Tradeoff
from utvm_deploy.compiler.lowering.scheduling import Scheduler
from utvm_deploy.compiler.options import (
    COMPACT_OF_LEVEL,
    FLASH_RATE,
    OPTIMIZATION_FLAGS,
    Objective,
    ScratchStack,
    cache_of_arena,
)
from utvm_deploy.compiler.picks import Picks
from utvm_deploy.compiler.planning.choice import Choose, calls_of
from utvm_deploy.compiler.planning.decision import Known, Sequenced, decide, model_of, settled
from utvm_deploy.compiler.planning.flash_rate import FlashChoice, room_for_tables
from utvm_deploy.compiler.planning.kernel_costs import (
    NO_LAYERS,
    CoreCosts,
    KernelCosts,
    Option,
    WholeLayers,
)
from utvm_deploy.compiler.planning.plan_search import within_limits
from utvm_deploy.compiler.planning.rounding_choice import rounded_where_small
from utvm_deploy.compiler.planning.scratch_limit import NO_SPARE, SPARE_FOR_TIME, within_memory
from utvm_deploy.compiler.planning.stale import Chosen, by_current_records
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.known_calls import once_for_equals
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.packed_weights import graph_of_call
from utvm_deploy.kernels.contract.reading import reading_of
from utvm_deploy.records import DEFAULT, Setting
from utvm_deploy.records.candidate import COMPACT_LITTLE, GENERIC, SPARSE, Candidate
from utvm_deploy.targets.contract.costs import CostTable
from utvm_deploy.targets.table import ESTIMATED, target_of

#: The cycles that zeros of weights have to save for each byte of flash, where no rate decides.
_RATES_OF_ZEROS: Mapping[str, float] = {Objective.BALANCED: FLASH_RATE, Objective.SIZE: 64.0}


@dataclass(frozen=True)
class Planned:
    """A graph and its kernels, and what they cost where there is a budget."""

    graph: Graph
    chosen: Chosen
    tradeoff: Tradeoff | None
    #: What the layers could have for more or less flash; none within limits.
    flash_plans: tuple[FlashPlan, ...] = ()


@dataclass(frozen=True)
class WholeGraph:
    """What the layers of a graph without strips need and cost."""

    # Position of each operator with code -> the bytes that it needs, scratch aside.
    live_bytes: Mapping[int, int]
    layers: WholeLayers


@dataclass(frozen=True)
class Planner:
    """Chooses the kernels of graphs for one board, with one set of options."""

    board: Board
    family: str  # as ``lower`` takes it
    objective: Objective
    place: str  # of scratch: options.ARENA or STACK
    known: Known
    scheduler: Scheduler
    #: How a kernel rounds.
    rounded: Callable[[KernelCall], KernelCall]
    stack: ScratchStack | None
    backends: tuple[Backend, ...] = ()
    #: Candidates that replace those of records.
    picks: Picks | None = None
    #: Whether the decision has the codes of kernels without records, too.
    all_codes: bool = False
    #: Cycles that each byte of flash has to save; None: kernels stay as records want them.
    flash_rate: float | None = None
    their_calls: TheirCalls = field(default_factory=dict, repr=False)

    def plan(self, graph: Graph, limits: Limits, layers: WholeLayers = NO_LAYERS) -> Planned:
        """The kernels of a graph within ``limits``.

        ``layers`` are those of the graph without strips, if it has some. Raises OverBudget if there
        are no such kernels, and CompileError if a layer has no kernel.
        """
        core = self.board.cpu.kernel_core
        tradeoffs: list[Tradeoff] = []
        choices: list[FlashChoice] = []

        def choose(known: Known) -> Chosen:
            tradeoffs.clear()
            choices.clear()
            return self._choose(graph, limits, layers, known, tradeoffs, choices)

        chosen = by_current_records(choose, self.known, core, all_codes=self.all_codes)
        made = Planned(graph, chosen, tradeoffs[-1] if tradeoffs else None)
        if limits != NO_LIMITS:
            return made
        cycles, _ = self.cycles(made)
        return replace(made, flash_plans=choices[0].frontier(chosen.sequence, cycles))

    def whole(self, graph: Graph) -> WholeGraph:
        """What the layers of a graph need and cost that has no strips."""
        steps, needed = self._steps(graph)
        return WholeGraph(needed, self._costs(graph, self.known, NO_LAYERS).of_layers(steps))

    def needed(self, graph: Graph) -> dict[int, int]:
        """Position of each operator with code -> the bytes that it needs with scratch, about."""
        steps, needed = self._steps(graph)
        scratch = map(self.scheduler.scratch_of, steps)
        return {
            position: size + sum(own)
            for (position, size), own in zip(needed.items(), scratch, strict=True)
        }

    def _steps(self, graph: Graph) -> tuple[list[Step], dict[int, int]]:
        """The operators with code, and what they need by their positions, scratch aside."""
        sequence = lowered_steps(graph, self.family, lambda one: lower(graph, one, self.family))
        positions = {id(operator): i for i, operator in enumerate(graph.operators)}
        steps = [item for item in sequence if isinstance(item, Step)]
        layout = Layout(graph, sequence)
        needed = {
            positions[id(step.operator)]: layout.needed(index, step)
            for index, step in enumerate(steps)
        }
        return steps, needed

    def cycles(self, made: Planned) -> tuple[float, float]:
        """What a plan with scratch in tightly coupled RAM takes, about; the share by records."""
        costs = self._costs(made.graph, self.known, NO_LAYERS)
        steps = (item for item in made.chosen.sequence if isinstance(item, Step))
        known = [costs.of_kernel(step) for step in steps]
        total = sum(cycles for cycles, _ in known)
        return total, sum(cycles for cycles, is_known in known if is_known) / max(total, 1.0)

    def operator_cycles(self, graph: Graph, operators: Sequence[Operator]) -> float:
        """What our kernels take for operators of a graph, about, in the unit of ``costs``."""
        costs = self._costs(graph, self.known, NO_LAYERS)
        return sum(
            costs.of_kernel(Step(one, lower(graph, one, self.family), ()))[0]
            for one in operators
            if not is_view(graph, one)
        )

    @property
    def costs(self) -> CostTable:
        """What kernels without a record cost on the board's core."""
        core = self.board.cpu.kernel_core
        return target_of(core).costs.get(core, ESTIMATED)

    def _costs(self, graph: Graph, known: Known, layers: WholeLayers) -> KernelCosts:
        flag = OPTIMIZATION_FLAGS[self.objective]
        return KernelCosts(
            graph,
            known.all,
            Setting(self.family, "", flag, "", "", model_of(self.board)),
            self._smaller(graph),
            self.scheduler.scratch_of,
            self.rounded,
            CoreCosts(self.costs, cache_of_arena(self.board), self.flash_rate or 0.0),
            layers,
        )

    def _choose(
        self,
        graph: Graph,
        limits: Limits,
        layers: WholeLayers,
        known: Known,
        tradeoffs: list[Tradeoff],
        choices: list[FlashChoice],
    ) -> Chosen:
        decision = decide(graph, self.board, self.family, known, self.objective, self.place)
        if self.picks is not None:
            decision = replace(decision, picks={**decision.without, **self.picks})
        scratch_of = self.scheduler.scratch_of
        lowered: list[Sequenced] = []

        def fitted(picks: Picks) -> tuple[Sequenced, Sequenced]:
            costs = self._costs(graph, known, layers)
            choices.append(self._flash_choice(graph, known, costs, picks))
            wanted = choices[-1].plan()
            lowered.append(wanted)
            if limits == NO_LIMITS:
                spare = NO_SPARE if self.objective == Objective.SIZE else SPARE_FOR_TIME
                smaller = self._smaller(graph)
                fitting = within_memory(graph, wanted, smaller, scratch_of, spare, self.stack)
                return wanted, fitting
            ram = self.board.main_ram.size
            fitting, made = within_limits(graph, wanted, costs, scratch_of, limits, ram)
            tradeoffs.append(made)
            return wanted, fitting

        sequence, decision = settled(graph, decision, fitted)
        if self.objective == Objective.BALANCED:
            sequence = rounded_where_small(sequence, self.board.cpu.kernel_core)
        return Chosen(lowered[0], sequence, decision, self.scheduler.schedule(sequence))

    def _flash_choice(
        self, graph: Graph, known: Known, costs: KernelCosts, picks: Picks
    ) -> FlashChoice:
        """The kernels that records want, before memory is looked at, and other forms of them."""
        choose = once_for_equals(graph, calls_of(graph, self.family, picks, self.objective))
        if self.backends:
            core, flag = self.board.cpu.kernel_core, OPTIMIZATION_FLAGS[self.objective]

            def cycles(operator: Operator, call: KernelCall) -> float:
                return costs.of_kernel(Step(operator, call, ()))[0]

            choose = Either(
                graph, self.backends, choose, cycles, core, known.own, flag, self.their_calls
            )

        wanted = lowered_steps(graph, self.family, lambda one: self.rounded(choose(one)))
        rate = _RATES_OF_ZEROS.get(self.objective)
        if rate is not None:
            wanted = tuple(_dense_if_worth(item, costs, rate) for item in wanted)
        scratch_of = self.scheduler.scratch_of

        @cache
        def most_scratch() -> int:
            return max(sum(scratch_of(one)) for one in wanted if isinstance(one, Step))

        def forms(step: Step) -> tuple[Option, ...]:
            return costs.forms(step, most_scratch())

        room = room_for_tables(self.board)
        return FlashChoice(wanted, forms, self.board.cpu.kernel_core, self.flash_rate, room)

    def _smaller(self, graph: Graph) -> Callable[[Step, int], KernelCall]:
        scratch_of, most_compact = self.scheduler.scratch_of, COMPACT_OF_LEVEL[self.objective]
        rate = self.flash_rate or 0.0
        return smaller_calls(
            graph, self.family, self.board, scratch_of, self.rounded, rate, most_compact
        )


def smaller_calls(
    graph: Graph,
    family: str,
    board: Board,
    scratch_of: Callable[[Step], tuple[int, ...]],
    rounded: Callable[[KernelCall], KernelCall],
    flash_rate: float,
    most_compact: int = 0,
) -> Callable[[Step, int], KernelCall]:
    """Calls with less scratch, of the family that a step's call has; ``family`` as for ``lower``.

    Their tables are as compact as the level asks (``most_compact``). Larger ones than those of the
    step have to save ``flash_rate`` cycles for each byte.
    """

    def within(step: Step, most_bytes: int, compact: int = 0) -> KernelCall:
        own = Candidate(step.call.family)
        if own.family != GENERIC:
            limits = {"most_scratch": most_bytes, "compact": compact}
            of_call = graph_of_call(graph, step.operator, step.call)
            with suppress(UnsupportedOperator):
                call = lower(of_call, step.operator, family, own, **limits)
                return replace(call, is_unpacked=step.call.is_unpacked)
        return lower(graph, step.operator, family)

    def smaller(step: Step, most_bytes: int) -> KernelCall:
        if isinstance(step.call.kernel, LibraryKernel):
            return rounded(step.call)
        call = within(step, most_bytes)
        heeds, compact = step.call.heeds_compact, most_compact
        by_rate = not compact and call.table_bytes > step.call.table_bytes
        if by_rate:
            heeds, compact = call.heeds_compact, COMPACT_LITTLE
        if 0 < heeds <= compact:
            other = within(step, most_bytes, compact)
            fits = sum(scratch_of(replace(step, call=other))) <= most_bytes
            # Records know of the fastest kernels whether larger tables are worth the rate.
            keeps = by_rate and not step.call.why_not and is_worth_it(call, other)
            call = other if fits and not keeps else call
        return rounded(call)

    def is_worth_it(call: KernelCall, other: KernelCall) -> bool:
        """Whether a call's larger tables save the flash rate, by estimates of both kernels."""
        more = call.table_bytes - other.table_bytes
        return cycles(other) - cycles(call) >= flash_rate * more

    def cycles(one: KernelCall) -> float:
        missed = 0.0 if board.cpu.dcache_bytes else reading_of(one.kernel).missed
        return getattr(one.kernel, "estimated_cycles", 0.0) - missed

    return smaller


def _dense_if_worth(item: Step | View, costs: KernelCosts, rate: float) -> Step | View:
    """The item; a layer gets its zeros back if each byte of them saves ``rate`` cycles."""
    if isinstance(item, View) or item.call.family != SPARSE or item.call.origin != DEFAULT:
        return item

    def cost(form: Option) -> float:
        return form.cycles + rate * form.step.call.table_bytes

    return min(costs.forms(item, math.inf), key=cost).step


def lowered_steps(graph: Graph, family: str, choose: Choose) -> tuple[Step | View, ...]:
    """A kernel call for every operator that needs one; ``family`` as ``lower`` takes it."""
    sequence = list(with_views(graph, lambda o: Step(o, choose(o), ())))
    if not any(isinstance(item, Step) for item in sequence):
        # Only views: something must happen between the caller's input and output.
        last = graph.operators[-1]
        sequence[-1] = Step(last, lower(graph, last, family), ())
    return tuple(sequence)
