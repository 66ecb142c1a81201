"""Other memories than the arena's: which of them a model may use, and which constants go there.

A pool is a region of the board's RAM with a limit in bytes, such as 48 KiB of DTCM. The constants
in flash are the source; a pool has copies of those that are read most. How often a layer reads its
tables is an estimate: once, or in each pass over its weights (``pass_costs.weight_passes``)
where they do not stay in the data cache. ``pool_planning`` weighs them against activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board, Region
from utvm_deploy.compiler.budgets import Budget, check_size
from utvm_deploy.compiler.compiled.memory_use import MemoryPool, Resident, Span
from utvm_deploy.compiler.options import (
    ARENA,
    AUTO,
    STACK,
    ScratchStack,
    scratch_place,
    scratch_stack,
)
from utvm_deploy.compiler.planning.pass_costs import missed_share
from utvm_deploy.targets.emulator.model import REF_MISS_CYCLES

#: What the caller must align a pool to, and what everything in it is aligned to.
POOL_ALIGNMENT = 16
#: Of a core without caches.
LINE_BYTES = 32
#: The units in which a pool is shared out: more would take long, and gain nothing.
MOST_UNITS = 16384
#: For the alignment of scratch in a pool.
SLACK_BYTES = 128
#: A pool holds scratch if it is larger than two data caches, and than these bytes: kernels with
#: less scratch are slower.
CACHES_FOR_SCRATCH, LEAST_FOR_SCRATCH = 2, 8192


@dataclass(frozen=True)
class PoolLimit:
    """A memory that a model may use."""

    name: str  # of the board's region
    size: int  # bytes
    # The cycles that a line of the cache saves if it is read from here, and not from flash.
    saved_cycles: float
    # Whether it is tightly coupled, and the arena's memory is not.
    is_faster: bool
    # The cycles that a line saves if it is read from here, and not from the arena.
    saved_of_arena: float = 0.0


@dataclass(frozen=True)
class Table:
    """A constant table, and the lines of the cache that a run reads of it from flash."""

    member: str
    span: Span
    layers: tuple[int, ...]
    lines: float


def with_arena_limit(budget: Budget, board: Board, pools: Mapping[str, int]) -> Budget:
    """The budget with what ``pools`` say of the memory that the arena is in.

    Raises CompileError if the budget limits the arena, too.
    """
    name = board.main_ram.name
    if name not in pools:
        return budget
    if budget.ram is not None:
        raise CompileError(
            f"the pool {name} and the RAM budget both limit the arena; leave one of them out"
        )
    return replace(budget, ram=pools[name])


def pool_limits(board: Board, pools: Mapping[str, int]) -> tuple[PoolLimit, ...]:
    """The memories besides the arena's, those that save most first.

    ``pools`` maps names of the board's regions to bytes. Raises CompileError for a region that the
    board does not have, that is flash, or that is smaller.
    """
    limits = []
    for name, size in pools.items():
        region = _region(board, name)
        check_size(f"the pool {name}", size)
        if size > region.size:
            raise CompileError(
                f"the pool {name} has {size:,} bytes, and {board.name}'s region {name} has "
                f"{region.size:,}; give at most that"
            )
        if region != board.main_ram:
            is_faster = region.kind == "tcm" != board.main_ram.kind
            saved = float(_arena_miss(board)) if is_faster else 0.0
            limits.append(PoolLimit(name, size, max(_miss(board, region), 0), is_faster, saved))
    return tuple(sorted(limits, key=lambda one: -one.saved_cycles))


@dataclass(frozen=True)
class ScratchMemory:
    """Where layers have their scratch."""

    place: str  # options.ARENA or STACK; kernels for a pool are chosen as for a stack
    stack: ScratchStack | None  # what it offers; None: it is the arena
    pool: PoolLimit | None  # None: another place


def scratch_memory(board: Board, limits: Sequence[PoolLimit], scratch: str) -> ScratchMemory:
    """The memory for one of ``options.SCRATCH_PLACES``, with the pools that the user gave.

    A pool is safer than a stack: the linker checks its size.
    """
    is_application = board.is_application  # it has no pools, and a stack that is large enough
    pool = _pool_for_scratch(board, limits) if scratch == AUTO and not is_application else None
    if pool is not None:
        room = pool.size - SLACK_BYTES
        return ScratchMemory(STACK, ScratchStack(room, room, is_shared=False, what="pool"), pool)
    place = scratch_place(board, scratch)
    if place == ARENA or (scratch == AUTO and not is_application):
        return ScratchMemory(ARENA, None, None)
    return ScratchMemory(place, scratch_stack(beside_pools(board, limits)), None)


def _pool_for_scratch(board: Board, limits: Sequence[PoolLimit]) -> PoolLimit | None:
    """The pool that layers have their scratch in; None: it is better elsewhere.

    Scratch is read and written more often than any weights, so it comes first. A small pool is no
    better than a cache. Where images have their stack alone in tightly coupled RAM, scratch has a
    pool there, if the user gave none. It has no more bytes than a stack would have for scratch.
    """
    pools, name, stack = list(limits), board.data_ram.name, scratch_stack(board)
    if scratch_place(board, AUTO) == STACK and all(limit.name != name for limit in limits):
        size = min(stack.room, stack.limit) + SLACK_BYTES
        pools.append(PoolLimit(name, size, 0.0, is_faster=True))
    least = max(CACHES_FOR_SCRATCH * board.cpu.dcache_bytes, LEAST_FOR_SCRATCH)
    large = [limit for limit in pools if limit.is_faster and limit.size > least]
    return max(large, key=lambda one: one.size, default=None)


def beside_pools(board: Board, limits: Iterable[PoolLimit]) -> Board:
    """The board, with its regions smaller by what pools take."""
    taken = {limit.name: limit.size for limit in limits}
    regions = (replace(one, size=one.size - taken.get(one.name, 0)) for one in board.memory)
    return replace(board, memory=tuple(regions))


def _region(board: Board, name: str) -> Region:
    rams = [region for region in board.memory if region.kind != "flash"]
    for region in rams:
        if region.name == name:
            return region
    known = ", ".join(region.name for region in rams)
    is_flash = any(region.name == name for region in board.memory)
    why = "is flash, and a pool is RAM" if is_flash else "is none of its regions"
    raise CompileError(f"{board.name} has no pool {name!r}: it {why}; choose from {known}")


def _miss(board: Board, region: Region) -> int:
    """Cycles of a line from flash, less those of one from the region."""
    flash = board.weights_flash(0).miss_cycles
    cost = REF_MISS_CYCLES if flash is None else flash
    if region.kind == "tcm" or not board.cpu.dcache_bytes:
        return cost
    return cost - (REF_MISS_CYCLES if region.miss_cycles is None else region.miss_cycles)


def _arena_miss(board: Board) -> int:
    """Cycles of a line of the arena; the host stands for a board with a cache."""
    if not board.cpu.dcache_bytes and not board.is_host:
        return 0
    cost = board.main_ram.miss_cycles
    return REF_MISS_CYCLES if cost is None else cost


def lines_read(size: int, layer_bytes: int, passes: float, cache_bytes: int) -> float:
    """The lines of a table of ``size`` bytes that a run of a layer reads from flash.

    ``layer_bytes`` are those of all tables of the layer, and ``passes`` says how often it goes
    through them.
    """
    again = missed_share(layer_bytes, cache_bytes) if cache_bytes else 1.0
    return -(-size // LINE_BYTES) * (1 + (passes - 1) * again)


def filled_pools(
    tables: Sequence[Table], limits: Iterable[PoolLimit], taken: Mapping[str, int]
) -> tuple[MemoryPool, ...]:
    """The copies in each pool that save most; a pool that holds nothing is left out.

    ``taken`` are the bytes at the start of a pool that others have, by its name.
    """
    left, pools = list(tables), []
    for limit in limits:
        own = taken.get(limit.name, 0)
        end, residents = aligned_in_pool(own), list[Resident]()
        chosen = _best(left, replace(limit, size=max(limit.size - end, 0)))
        if not chosen and not own:
            continue
        left = [table for table in left if table not in chosen]
        for table in chosen:
            size = table.span.size_bytes
            residents.append(Resident(table.member, table.span, end, table.layers))
            end = aligned_in_pool(end + size)
        pools.append(MemoryPool(limit.name, limit.size, end, 0, (), tuple(residents)))
    return tuple(pools)


def _best(tables: Sequence[Table], limit: PoolLimit) -> list[Table]:
    """The tables that save most of all that fit the limit together."""
    worth = [table for table in tables if table.lines * limit.saved_cycles > 0]
    sizes = [aligned_in_pool(table.span.size_bytes) for table in worth]
    most = limit.size // POOL_ALIGNMENT * POOL_ALIGNMENT
    if sum(sizes) <= most or not most:
        return worth if most else []
    # The knapsack problem: best[n] is what n units can save with the tables so far.
    unit = POOL_ALIGNMENT * -(-most // (POOL_ALIGNMENT * MOST_UNITS))
    count = most // unit
    best = np.zeros(count + 1)
    taken = np.zeros((len(worth), count + 1), bool)
    for row, (table, size) in enumerate(zip(worth, sizes, strict=True)):
        units = -(-size // unit)
        if units > count:
            continue
        gained = best[: count + 1 - units] + table.lines
        taken[row, units:] = gained > best[units:]
        best[units:] = np.maximum(best[units:], gained)
    chosen = []
    for row in reversed(range(len(worth))):
        if taken[row, count]:
            chosen.append(worth[row])
            count -= -(-sizes[row] // unit)
    return chosen[::-1]


def aligned_in_pool(size: int) -> int:
    """``size`` bytes, up to where the next thing in a pool may begin."""
    return -(-size // POOL_ALIGNMENT) * POOL_ALIGNMENT
