"""The search stage: which kernels, and which layers in strips, within the memory and the budget.

Five searches are in each other, from the outside in:

1. With a RAM budget, a pool in tightly coupled RAM may hold the scratch (``pool_budget``).
2. Chains of layers may be computed in strips of rows (``streaming``): each suggestion is planned.
3. A plan follows the records of its kernels. Records of other C than is emitted are dropped, and
   the kernels are chosen again (``stale``).
4. Records of the user are taken where they are faster than what would be taken without them
   (``decision``).
5. Each layer takes the fastest kernel whose scratch has room: by a limit of bytes
   (``plan_search``), or by what it may add to the arena (``scratch_limit``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from utvm_deploy.compiler.arena.needs import least_needs
from utvm_deploy.compiler.budgets import OverBudget
from utvm_deploy.compiler.options import ARENA, AUTO
from utvm_deploy.compiler.planning.planner import Planned, Planner
from utvm_deploy.compiler.planning.pool_budget import faster_with_pool, within_pool
from utvm_deploy.compiler.planning.pools import ScratchMemory
from utvm_deploy.compiler.planning.recomputation import best_step
from utvm_deploy.compiler.planning.streaming import best_plan, has_attention, with_cheap_strips
from utvm_deploy.compiler.stages.dump import calls_text, kernels_text, picks_text
from utvm_deploy.compiler.stages.network import Network
from utvm_deploy.compiler.stages.planners import planner_of
from utvm_deploy.compiler.stages.request import Request


@dataclass(frozen=True)
class KernelPlan:
    """The kernels of a model, and where their scratch is."""

    request: Request
    prefix: str
    made: Planned
    scratch: ScratchMemory
    #: What would be faster, in a sentence; empty: nothing is known.
    hint: str = ""

    @property
    def text(self) -> str:
        """For people: what records chose, the calls before and after memory was looked at, and the
        kernels.
        """
        graph, chosen = self.made.graph, self.made.chosen
        parts = {
            "choices": picks_text(chosen.decision.picks),
            "calls, before memory is looked at": calls_text(graph, chosen.wanted),
            "calls": calls_text(graph, chosen.sequence),
            "kernels": kernels_text(chosen.layers),
        }
        return "\n".join(f"## {title}\n{text}" for title, text in parts.items())


def searched(network: Network) -> KernelPlan:
    """The plan of a network. Raises OverBudget if none is within the budget."""
    request, graph, prefix = network.request, network.graph, network.prefix
    watch = request.watch
    may_shrink = request.may_stream or (request.may_cut_attention and has_attention(graph))
    if watch.check_needs is not None and not may_shrink:
        watch.check_needs(least_needs(prefix, graph))  # strips may take less
    planner = planner_of(request, prefix)
    made, scratch = _found(network, planner)
    if watch.decided is not None:
        watch.decided(made.chosen.decision)
    return KernelPlan(request, prefix, made, scratch, _hint(network, planner, made, scratch))


def _found(network: Network, planner: Planner) -> tuple[Planned, ScratchMemory]:
    """The plan, and where its scratch is.

    A budget may have room for a pool. Of plans within a budget of cycles, the one with the fewest
    bytes of arena and scratch is taken.
    """
    request, budget = network.request, network.request.budget
    pooled, limit = None, budget.cycles
    if request.fast_scratch is not None and budget.is_set and request.options.scratch == AUTO:
        most = math.inf if budget.ram is None else budget.ram
        pooled = within_pool(network.graph, most, planner, request.fast_scratch)
    if pooled is None:
        return _planned(network, planner), request.scratch
    if limit is None:
        return pooled.made, pooled.held
    try:
        made = _planned(network, planner)
    except OverBudget as error:
        if pooled.cycles > limit:
            if budget.ram is None and pooled.cycles >= error.fastest[1]:
                raise
            figures = error.least_bytes, (pooled.size_bytes, pooled.cycles)
            told = OverBudget.of_cycles(budget, pooled.cycles, planner.costs.unit, figures)
            raise told from None
        return pooled.made, pooled.held
    assert made.tradeoff is not None
    if pooled.cycles <= limit and pooled.size_bytes < made.tradeoff.arena_bytes:
        return pooled.made, pooled.held
    return made, request.scratch


def _planned(network: Network, planner: Planner) -> Planned:
    request, graph = network.request, network.graph
    if not request.may_stream:
        made = planner.plan(graph, request.goal.limits(request.budget))
        return with_cheap_strips(made, planner) if request.may_cut_attention else made
    if graph.training is not None:
        return best_step(graph, request.goal, request.budget, planner, request.watch.progress)
    return best_plan(graph, request.goal, request.budget, planner, request.watch.progress)


def _hint(network: Network, planner: Planner, made: Planned, scratch: ScratchMemory) -> str:
    fast = network.request.fast_scratch
    if scratch.place != ARENA or fast is None or made.tradeoff is None:
        return ""
    return faster_with_pool(network.graph, planner, fast, made.tradeoff.cycles) or ""
