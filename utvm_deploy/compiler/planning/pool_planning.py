"""Who is in a pool: scratch first, then activations and copies of constants, by what they save.

What a line of the cache costs is known of each memory, and how many lines a run reads is an
estimate. An activation is read once by each layer that takes it. Activations share a pool's bytes
by their lifetimes, and constants do not. So the compiler tries several shares of the pool for
activations, gives the rest to constants, and takes what saves most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.constants import ConstantTables
from utvm_deploy.compiler.arena.memory_map import pool_map
from utvm_deploy.compiler.arena.placement import live_peak
from utvm_deploy.compiler.arena.plan import ArenaPlan, Step, View, with_pool
from utvm_deploy.compiler.lowering.program import Program, ScheduledStep, layer_constants
from utvm_deploy.compiler.planning.pass_costs import missed_share, weight_passes
from utvm_deploy.compiler.planning.pools import (
    LINE_BYTES,
    PoolLimit,
    Table,
    aligned_in_pool,
    filled_pools,
    lines_read,
)
from utvm_deploy.graph.attributes import InputRows

#: What a line that is stored to costs, compared with one that is read. Counted on the emulated
#: Cortex-M7, of whole models: 8 to 13 cycles instead of 22.
STORED_LINE = 0.5
#: Activations must save this much more than the constants that they displace: less is known of what
#: they save.
MARGIN = 1.5
#: The shares of a pool that are tried for activations.
SHARES = 8


@dataclass(frozen=True)
class Memories:
    """What a program may use besides the arena."""

    limits: tuple[PoolLimit, ...]
    # The pool for activations, and whether scratch is there, too.
    near: PoolLimit | None
    has_scratch: bool
    cache_bytes: int  # of the data cache in front of flash and arena; 0: none


def with_pools(program: Program, sequence: Sequence[Step | View], memories: Memories) -> Program:
    """The program with its pools, and with a plan that has some blocks there.

    ``sequence`` is the one of the program's plan. Raises CompileError if the scratch does not fit
    its pool: a bug.
    """
    if not memories.limits:
        return program
    near = memories.near
    if near is not None:
        program = replace(program, near_pool=near.name, has_scratch_in_pool=memories.has_scratch)
    tables = _tables(program, memories.cache_bytes)
    scratch = 0 if near is None else _scratch_bytes(program, near)
    best = _filled(program, memories, tables, scratch)
    most = alone = _saved(best, memories, tables)
    if near is None or not near.saved_of_arena:
        return best
    worth = _worth(program, memories.cache_bytes)
    at = aligned_in_pool(scratch)
    for share in range(1, SHARES + 1):
        moved = _moved(program.plan, worth, (near.size - at) * share // SHARES)
        plan = program.plan
        while moved:
            plan = with_pool(program.graph, sequence, program.plan, moved, at)
            if plan.pool_bytes <= near.size:
                break
            moved = moved[:-1]  # what is worth least
        if not moved:
            continue
        filled = _filled(replace(program, plan=plan), memories, tables, scratch)
        constants = _saved(filled, memories, tables)
        activations = sum(worth[block] for block in moved) * near.saved_of_arena
        is_clear = activations > MARGIN * (alone - constants)
        if is_clear and constants + activations > most:
            best, most = filled, constants + activations
    return best


def scratch_offsets(program: Program, index: int, layer: ScheduledStep) -> list[int] | None:
    """Where in its pool a layer has its scratch buffers; None if they are elsewhere."""
    if not program.has_scratch_in_pool or program.plan.scratch[index]:
        return None
    sizes = [one.size_bytes for one in layer.kernel.function.scratch]
    return list(accumulate(map(aligned_in_pool, sizes[:-1]), initial=0))[: len(sizes)]


def _scratch_bytes(program: Program, limit: PoolLimit) -> int:
    """The most that a layer takes of a pool for scratch."""
    most = 0
    for index, layer in enumerate(program.layers):
        offsets = scratch_offsets(program, index, layer)
        if offsets:
            most = max(most, offsets[-1] + layer.kernel.function.scratch[-1].size_bytes)
    if most > limit.size:
        raise CompileError(
            f"scratch of {most:,} bytes is in a pool of {limit.size:,}; this is a bug in the "
            "planner"
        )
    return most


def _tables(program: Program, cache_bytes: int) -> list[Table]:
    """The constant tables, and the lines that a run reads of them."""
    tables = ConstantTables()
    lines: dict[str, float] = {}
    layers: dict[str, tuple[int, ...]] = {}
    for index, layer in enumerate(program.layers):
        passes = weight_passes(program.graph, layer.step, layer.kernel.function.scratch_bytes)
        constants = list(layer_constants(program, index))
        members = {tables.add(*one) for one in constants}
        if any(alignment > 1 for _, _, alignment in constants):
            continue  # copies in pools are aligned to words only
        sizes = {member: tables.span(member).size_bytes for member in sorted(members)}
        for member, size in sizes.items():
            more = lines_read(size, sum(sizes.values()), passes, cache_bytes)
            lines[member] = lines.get(member, 0.0) + more
            layers[member] = (*layers.get(member, ()), index)
    found = [Table(one, tables.span(one), layers[one], lines[one]) for one in lines]
    return sorted(found, key=lambda table: table.span.offset)


def _filled(program: Program, memories: Memories, tables: Sequence[Table], scratch: int) -> Program:
    """The program with constants in what its plan leaves of the pools."""
    near = memories.near
    taken = {} if near is None else {near.name: max(scratch, program.plan.pool_bytes)}
    pools = filled_pools(tables, memories.limits, taken)
    if near is not None:
        uses = pool_map(program.plan)
        pools = tuple(
            replace(pool, scratch_bytes=scratch, uses=uses) if pool.name == near.name else pool
            for pool in pools
        )
    return replace(program, pools=pools)


def _saved(program: Program, memories: Memories, tables: Sequence[Table]) -> float:
    """The cycles that constants in pools save in a run."""
    lines = {table.member: table.lines for table in tables}
    each = {limit.name: limit.saved_cycles for limit in memories.limits}
    return sum(
        each[pool.name] * lines[one.table] for pool in program.pools for one in pool.residents
    )


def _worth(program: Program, cache_bytes: int) -> Mapping[int, float]:
    """Block of the plan -> the lines of it that a run misses, of blocks that may be elsewhere."""
    graph, plan = program.graph, program.plan
    found: dict[int, float] = {}
    fixed = set[int]()
    for index, layer in enumerate(program.layers):
        operator = layer.step.operator
        if isinstance(operator.attributes, InputRows):
            fixed |= {plan.block_of[one] for one in operator.outputs}
        read = {one for one in operator.inputs if one in plan.block_of}
        stored = STORED_LINE * _visits(program, index, cache_bytes)
        for used, weight in ((read, 1.0), (set(operator.outputs), stored)):
            for tensor in used:
                assert tensor is not None
                size = graph.tensors[tensor].size_bytes
                missed = missed_share(size, cache_bytes) if cache_bytes else 1.0
                block = plan.block_of[tensor]
                found[block] = found.get(block, 0.0) + weight * missed * -(-size // LINE_BYTES)
    last = len(program.layers)
    return {
        block: lines
        for block, lines in found.items()
        if lines
        and block not in fixed
        and plan.blocks[block].first >= 0
        and plan.blocks[block].last < last
    }


def _visits(program: Program, index: int, cache_bytes: int) -> float:
    """How often a layer stores to a line of its output that it has lost from the cache, about.

    Kernels compute two channels of many pixels, and then the next two. In between, the weights of
    two channels go through the cache.
    """
    (output, *_) = program.layers[index].step.operator.outputs
    channels = max(*program.graph.tensors[output].shape[-1:], 1)
    largest = max((data.nbytes for _, data, _ in layer_constants(program, index)), default=0)
    lost = missed_share(2 * largest // channels, cache_bytes) if cache_bytes else 0.0
    return 1.0 + max(min(channels, LINE_BYTES) / 2 - 1, 0.0) * lost


def _moved(plan: ArenaPlan, worth: Mapping[int, float], size: int) -> list[int]:
    """The blocks that are worth most for their bytes, as far as they fit ``size`` bytes by their
    lifetimes.
    """
    chosen: list[int] = []
    for block in sorted(worth, key=lambda one: (-worth[one] / plan.blocks[one].size_bytes, one)):
        some = [plan.blocks[one] for one in (*chosen, block)]
        if live_peak(some) <= size:
            chosen.append(block)
    return chosen
