"""Which bytes of the arena hold what, and from which layer to which."""

from __future__ import annotations

from utvm_deploy.compiler.arena.placement import parts_of
from utvm_deploy.compiler.arena.plan import ArenaPlan
from utvm_deploy.compiler.compiled.memory_use import ArenaUse


def memory_map(plan: ArenaPlan) -> tuple[ArenaUse, ...]:
    """Every block of the arena, in the order in which it is first used."""
    return _map(plan, is_in_pool=False)


def pool_map(plan: ArenaPlan) -> tuple[ArenaUse, ...]:
    """Every block in the plan's pool, by offsets from the pool's start."""
    return _map(plan, is_in_pool=True)


def _map(plan: ArenaPlan, *, is_in_pool: bool) -> tuple[ArenaUse, ...]:
    moved = {plan.block_of[tensor] for tensor in plan.in_pool}
    steps = len(plan.scratch)
    tensors = len(plan.blocks) - sum(map(len, plan.scratch))  # scratch comes after them
    found = []
    for place, (block, offset) in enumerate(zip(plan.blocks, plan.placement.offsets, strict=True)):
        if (place in moved) != is_in_pool:
            continue
        # Inputs are there before the first layer, outputs after the last one, states both.
        is_early, is_late = block.first < 0, block.last >= steps
        if place >= tensors:
            kind = "scratch"
        elif is_early and is_late:
            kind = "state"
        elif is_early or is_late:
            kind = "input" if is_early else "output"
        else:
            kind = "activation"
        for part in parts_of(block):
            first, last = max(part.first, 0), min(part.last, steps - 1)
            size = part.end - part.start
            found.append(ArenaUse(block.name, kind, offset + part.start, size, first, last))
    return tuple(sorted(found, key=lambda use: (use.first, use.offset)))
