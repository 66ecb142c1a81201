"""Budgets on a board with tightly coupled RAM: scratch in a pool there counts, too."""

from __future__ import annotations

from dataclasses import dataclass, replace

from utvm_deploy.compiler.arena.plan import Step, plan_arena
from utvm_deploy.compiler.budgets import NO_LIMITS, Tradeoff
from utvm_deploy.compiler.planning.planner import Planned, Planner
from utvm_deploy.compiler.planning.pools import ScratchMemory, aligned_in_pool
from utvm_deploy.graph.model import Graph

#: With less scratch than this, hardly any kernel is faster than one whose scratch is in a cache.
LEAST_ROOM = 2048
#: A plan that takes more times as long than this gets a note.
MUCH_FASTER = 1.1


@dataclass(frozen=True)
class Pooled:
    """A plan with scratch in a pool."""

    made: Planned
    held: ScratchMemory
    size_bytes: int  # of the arena and of scratch
    cycles: int  # about


def within_pool(
    graph: Graph, most_bytes: float, planner: Planner, held: ScratchMemory
) -> Pooled | None:
    """The plan of whole layers with scratch in a pool; None if it has more bytes than the budget.

    First with all scratch that the pool has room for: nothing is faster. Then with what the arena
    leaves of the budget, which costs some passes over weights.
    """
    assert held.stack is not None
    room, free = held.stack.room, (0, 0)
    while room >= LEAST_ROOM:
        held = replace(held, stack=replace(held.stack, limit=room, room=room))
        fast = replace(planner, place=held.place, stack=held.stack)
        made = fast.plan(graph, NO_LIMITS)
        arena, pool = _sizes(made, planner, room)
        cycles, measured = fast.cycles(made)
        free = free if any(free) else (arena, round(cycles))
        if arena + pool <= most_bytes:
            unit = planner.costs.unit
            tradeoff = Tradeoff(arena, round(cycles), *free, arena, measured, unit=unit)
            made = replace(made, tradeoff=tradeoff, flash_plans=())
            return Pooled(made, held, arena + pool, round(cycles))
        # Blocks in a pool are aligned; the smaller room ends this.
        room = int(min(most_bytes - arena, room)) - aligned_in_pool(1)
    return None


def faster_with_pool(
    graph: Graph, planner: Planner, held: ScratchMemory, cycles: int
) -> str | None:
    """What a pool for scratch would gain; ``cycles`` is what the plan without it takes, about.

    None where that is not much.
    """
    assert held.stack is not None and held.pool is not None
    fast = replace(planner, place=held.place, stack=held.stack)
    made = fast.plan(graph, NO_LIMITS)
    better, _ = fast.cycles(made)
    if cycles < MUCH_FASTER * better:
        return None
    _, size = _sizes(made, fast, held.stack.room)
    return (
        f"faster: scratch in {held.pool.name}, {size:,} bytes of it (--scratch auto at level time, "
        f"without a budget), takes about {better / 1e6:.1f} M {planner.costs.unit}; this takes "
        f"about {cycles / 1e6:.1f} M, by records and estimates"
    )


def _sizes(made: Planned, planner: Planner, limit: int) -> tuple[int, int]:
    """Bytes of the arena, and of the pool; scratch of more than the limit is in the arena."""
    sequence, most = [], 0
    for item in made.chosen.sequence:
        if isinstance(item, Step):
            scratch = planner.scheduler.scratch_of(item)
            if sum(scratch) > limit:
                item = replace(item, scratch_bytes=scratch)
            else:
                most = max(most, sum(map(aligned_in_pool, scratch)))
        sequence.append(item)
    return plan_arena(made.graph, sequence).arena_bytes, most
