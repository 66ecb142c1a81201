"""Blocks with lifetimes -> offsets in one arena. Knows nothing of graphs.

Optimal placement is NP-hard. We try several first-fit orders from either end. Each is improved by
moving the block that sticks out to the front. The results are near the lower bound on the networks
that matter here. Equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.lifetimes import alive_bytes, neighbours

#: Block pairs looked at in one search: about half a second at worst, far less when the lower bound
#: is met early, as it nearly always is.
SEARCH_BUDGET_PAIRS = 1_000_000


@dataclass(frozen=True)
class Part:
    """Bytes ``start`` to ``end`` (excluded) of a block, and when they must stay untouched."""

    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True)
class Block:
    """Bytes that must stay untouched from step ``first`` to step ``last``, both included."""

    name: str
    size_bytes: int
    first: int
    last: int
    alignment: int
    # Parts that are needed for less long; without any, all bytes are needed all the time.
    parts: tuple[Part, ...] = ()

    def needed(self, first: int, last: int) -> tuple[int, int]:
        """Where the bytes begin and end that are needed in some of these steps."""
        if not self.parts:
            return 0, self.size_bytes
        some = [part for part in self.parts if part.first <= last and part.last >= first]
        if not some:
            return 0, 0
        return min(part.start for part in some), max(part.end for part in some)


@dataclass(frozen=True)
class Handover:
    """Two blocks, alive together at one step, of which one may be written onto the other.

    ``source`` and ``result`` are positions among the blocks.
    """

    source: int
    result: int
    # So much behind the result the source must begin, if they overlap: at least, or exactly. A
    # multiple of both alignments.
    lag_bytes: int
    is_exact: bool = False

    def allows(self, source_offset: int, result_offset: int) -> bool:
        """Whether they may lie so."""
        distance = source_offset - result_offset
        return distance == self.lag_bytes if self.is_exact else distance >= self.lag_bytes

    def saved_bytes(self, source: Block, result: Block) -> int:
        """The most bytes that both can have in common."""
        distance = self.lag_bytes if self.is_exact else max(self.lag_bytes, 0)
        end = max(source.size_bytes + distance, result.size_bytes)
        both = source.size_bytes + result.size_bytes
        return max(both - (end - min(distance, 0)), 0)


@dataclass(frozen=True)
class Placement:
    """An offset for every block, in the order the blocks were given."""

    offsets: tuple[int, ...]
    arena_bytes: int


def live_bytes(
    steps: Sequence[int], blocks: Sequence[Block], handovers: Sequence[Handover] = ()
) -> list[int]:
    """The bytes needed at each of ``steps``."""
    parts = [part for block in blocks for part in parts_of(block)]
    sizes = [part.end - part.start for part in parts]
    needed = alive_bytes([(part.first, part.last) for part in parts], sizes, steps)
    saved: dict[int, int] = {}
    for one in handovers:
        source, result = blocks[one.source], blocks[one.result]
        saved[result.first] = saved.get(result.first, 0) + one.saved_bytes(source, result)
    return [size - saved.get(step, 0) for size, step in zip(needed, steps, strict=True)]


def live_peak(blocks: Sequence[Block], handovers: Sequence[Handover] = ()) -> int:
    """The most bytes needed at one step: no placement can be smaller."""
    steps = sorted({block.first for block in blocks})
    return max(live_bytes(steps, blocks, handovers), default=0)


def parts_of(block: Block) -> tuple[Part, ...]:
    """The parts of a block; one for the whole block where it has none."""
    return block.parts or (Part(0, block.size_bytes, block.first, block.last),)


def _lifetimes(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    return [(block.first, block.last) for block in blocks]


def place(blocks: Sequence[Block], handovers: Sequence[Handover] = ()) -> Placement:
    """The smallest placement that the search finds."""
    if not blocks:
        return Placement((), 0)
    peak = live_peak(blocks, handovers)
    below = _search(blocks, handovers, peak)
    if not handovers or below.arena_bytes <= peak:
        return below
    # In a chain of blocks that replace each other, each result begins before its source. If the
    # first block is at the arena's start, there is no room for that, so try from the other end.
    turned = [_turned(_aligned(block)) for block in blocks]
    mirrored = _search(turned, _mirrored(blocks, handovers), peak)
    if mirrored.arena_bytes >= below.arena_bytes:
        return below
    grain = max(block.alignment for block in blocks)
    end = -(-mirrored.arena_bytes // grain) * grain
    placed = zip(mirrored.offsets, blocks, strict=True)
    offsets = tuple(end - offset - _aligned(block).size_bytes for offset, block in placed)
    used = max(offset + block.size_bytes for offset, block in zip(offsets, blocks, strict=True))
    return Placement(offsets, used)


def _search(blocks: Sequence[Block], handovers: Sequence[Handover], peak: int) -> Placement:
    """The best of all orders, from one end."""
    by_block = {(h.source, h.result): h for h in handovers}
    conflicts = [
        [(j, *_conflict(blocks[i], blocks[j])) for j in others]
        for i, others in enumerate(neighbours(_lifetimes(blocks)))
    ]
    rounds = max(1, SEARCH_BUDGET_PAIRS // (len(blocks) ** 2 * len(_ORDERS)))
    best: Placement | None = None
    for key in _ORDERS:
        order = sorted(range(len(blocks)), key=lambda i: (*key(blocks[i]), i))
        seen = set()
        for _ in range(rounds):
            placement = _first_fit(blocks, conflicts, by_block, order)
            if best is None or placement.arena_bytes < best.arena_bytes:
                best = placement
            if best.arena_bytes <= peak:
                return best
            # The block that ends highest found no room below: let it choose first next time.
            top = max(order, key=lambda i: (placement.offsets[i] + blocks[i].size_bytes, -i))
            order.remove(top)
            order.insert(0, top)
            if tuple(order) in seen:
                break
            seen.add(tuple(order))
    assert best is not None
    return best


def _aligned(block: Block) -> Block:
    """The block with a size that begins aligned when it ends aligned."""
    size = -(-block.size_bytes // block.alignment) * block.alignment
    return block if size == block.size_bytes else replace(block, size_bytes=size)


def _turned(block: Block) -> Block:
    """The block as it is when offsets are counted from the arena's end."""
    size = block.size_bytes
    parts = (replace(one, start=size - one.end, end=size - one.start) for one in block.parts)
    return replace(block, parts=tuple(parts))


def _mirrored(blocks: Sequence[Block], handovers: Sequence[Handover]) -> list[Handover]:
    """The same with offsets counted from the arena's end, to aligned blocks' ends."""
    mirrored = []
    for one in handovers:
        source, result = _aligned(blocks[one.source]), _aligned(blocks[one.result])
        lag = one.lag_bytes + source.size_bytes - result.size_bytes
        mirrored.append(Handover(one.result, one.source, lag, one.is_exact))
    return mirrored


def verify(
    blocks: Sequence[Block], placement: Placement, handovers: Sequence[Handover] = ()
) -> None:
    """Raise CompileError unless all blocks are inside, aligned, and disjoint while alive.

    Those that are handed over may overlap as far as that allows.
    """
    pairs = {frozenset((h.source, h.result)): h for h in handovers}
    placed = list(zip(blocks, placement.offsets, strict=True))
    alive_together = neighbours(_lifetimes(blocks))
    for index, (block, offset) in enumerate(placed):
        end = offset + block.size_bytes
        if offset < 0 or end > placement.arena_bytes or offset % block.alignment:
            raise CompileError(
                f"the arena plan puts {block.name} at {offset}..{end} of {placement.arena_bytes} "
                f"bytes with alignment {block.alignment}; this is a bug in the planner"
            )
        for earlier in alive_together[index]:
            if earlier > index:
                break
            other, start = placed[earlier]
            handover = pairs.get(frozenset((earlier, index)))
            if handover is not None and handover.allows(
                placement.offsets[handover.source], placement.offsets[handover.result]
            ):
                continue
            (own_low, own_high), (low, high) = _both_needed(block, other)
            if offset + own_low < start + high and start + low < offset + own_high:
                raise CompileError(
                    f"the arena plan lets {block.name} and {other.name} overlap; "
                    "this is a bug in the planner"
                )


# Sort keys, largest or longest first; the last one is the order of execution.
_ORDERS: tuple[Callable[[Block], tuple[int, int]], ...] = (
    lambda b: (-b.size_bytes, b.first),
    lambda b: (-b.size_bytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.size_bytes),
    lambda b: (b.first, -b.size_bytes),
)


def _first_fit(
    blocks: Sequence[Block],
    conflicts: Sequence[Sequence[tuple[int, int, int]]],
    handovers: Mapping[tuple[int, int], Handover],
    order: Sequence[int],
) -> Placement:
    """Place in the given order, each block at the lowest offset that is free while it lives."""
    offsets: dict[int, int] = {}
    for i in order:
        alignment = blocks[i].alignment
        # Offsets between these two, both excluded, are not free.
        taken: list[tuple[int, int]] = []
        for j, below, above in conflicts[i]:
            if j not in offsets:
                continue
            low, high = offsets[j] + below, offsets[j] + above
            if (i, j) in handovers:
                taken += _as_source(handovers[i, j], offsets[j], low, high)
            elif (j, i) in handovers:
                taken += _as_result(handovers[j, i], offsets[j], low, high)
            else:
                taken.append((low, high))
        offset = 0
        for low, high in sorted(taken):
            if offset <= low:
                break
            offset = max(offset, -(-high // alignment) * alignment)
        offsets[i] = offset
    return Placement(
        tuple(offsets[i] for i in range(len(blocks))),
        max(offsets[i] + block.size_bytes for i, block in enumerate(blocks)),
    )


def _both_needed(one: Block, other: Block) -> tuple[tuple[int, int], tuple[int, int]]:
    """The bytes of each of two blocks that are needed while the other one is."""
    return one.needed(other.first, other.last), other.needed(one.first, one.last)


def _conflict(one: Block, other: Block) -> tuple[int, int]:
    """How far from ``other`` a block ``one`` must not begin: between these, both excluded."""
    (own_low, own_high), (low, high) = _both_needed(one, other)
    return low - own_high, high - own_low


def _as_source(one: Handover, result: int, low: int, high: int) -> list[tuple[int, int]]:
    """Where a source may not begin because of its result."""
    begin = result + one.lag_bytes
    if one.is_exact:
        return [(low, begin), (begin, high)] if low < begin < high else [(low, high)]
    return [(low, min(begin, high))] if low < begin else []


def _as_result(one: Handover, source: int, low: int, high: int) -> list[tuple[int, int]]:
    """Where a result may not begin because of its source."""
    begin = source - one.lag_bytes
    if one.is_exact:
        return [(low, begin), (begin, high)] if low < begin < high else [(low, high)]
    return [(max(begin, low), high)] if begin < high else []
