"""Blocks with lifetimes -> offsets in one arena. Knows nothing of graphs.

Optimal placement is NP-hard. We try several first-fit orders from either end. Each is improved by
moving the block that sticks out to the front. The results are near the lower bound on the networks
that matter here. Equal input gives equal output.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.lifetimes import alive_bytes, neighbours

#: Block pairs looked at in one search: about half a second at worst, far less when the lower bound
#: is met early, as it nearly always is.
SEARCH_BUDGET_PAIRS = 1_000_000


#: More than any memory has.
_FAR = 1 << 40
#: Two blocks, by position, and the first and the end of the bytes of each that are needed while the
#: other one is.
Pair: TypeAlias = tuple[int, int, int, int, int, int]
#: Of each block: another one, and between which distances from it it must not begin, both excluded.
Distances: TypeAlias = list[list[tuple[int, int, int]]]
#: Where a block may not begin because of another one's place, and bytes that are taken there.
Free: TypeAlias = Callable[[int, int, int], list[tuple[int, int]]]


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
    # Parts that are needed for a shorter time; without any, all bytes are needed all the time.
    parts: tuple[Part, ...] = ()

    def needed(self, first: int, last: int) -> tuple[int, int]:
        """Begin and end of the bytes that are needed in some of these steps."""
        if not self.parts:
            return 0, self.size_bytes
        low, high = self.size_bytes, 0
        for part in self.parts:
            if part.first <= last and part.last >= first:
                low, high = min(low, part.start), max(high, part.end)
        return (low, high) if high else (0, 0)


@dataclass(frozen=True)
class Handover:
    """Two blocks, alive together at one step, of which one may be written onto the other.

    ``source`` and ``result`` are positions among the blocks.
    """

    source: int
    result: int
    # The distance from the result to the source after it, if they overlap: at least, or exactly. A
    # multiple of both alignments.
    lag_bytes: int
    is_exact: bool = False

    def allows(self, source_offset: int, result_offset: int) -> bool:
        """Whether they may lie so."""
        distance = source_offset - result_offset
        return distance == self.lag_bytes if self.is_exact else distance >= self.lag_bytes

    def before(self, result: int, low: int, high: int) -> list[tuple[int, int]]:
        """Where the source may not begin because of its result, where ``low`` to ``high`` are its
        bytes."""
        begin = result + self.lag_bytes
        if self.is_exact:
            return [(low, begin), (begin, high)] if low < begin < high else [(low, high)]
        return [(low, min(begin, high))] if low < begin else []

    def behind(self, source: int, low: int, high: int) -> list[tuple[int, int]]:
        """Where the result may not begin because of its source."""
        begin = source - self.lag_bytes
        if self.is_exact:
            return [(low, begin), (begin, high)] if low < begin < high else [(low, high)]
        return [(max(begin, low), high)] if begin < high else []

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


def pairs_of(blocks: Sequence[Block]) -> list[Pair]:
    """The pairs of blocks that are alive together; of each, the later position comes first."""
    return [
        (i, j, *one.needed(other.first, other.last), *other.needed(one.first, one.last))
        for i, others in enumerate(neighbours(_lifetimes(blocks)))
        for one in (blocks[i],)
        for j in others[: bisect_left(others, i)]
        for other in (blocks[j],)
    ]


def place(blocks: Sequence[Block], handovers: Sequence[Handover] = ()) -> Placement:
    """The smallest placement that the search finds."""
    if not blocks:
        return Placement((), 0)
    found = Placer(blocks).below((), (), handovers, None, live_peak(blocks, handovers))
    assert found is not None, "without a limit, each order gives a placement"
    return found


class Placer:
    """Places some blocks again and again, each time with others in addition."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)
        self._pairs = pairs_of(blocks)
        self._distances = _distances(len(blocks), self._pairs)

    @cached_property
    def _turned(self) -> tuple[tuple[Block, ...], Distances]:
        """The blocks and their distances as they are when offsets are counted from the end."""
        aligned = tuple(map(_aligned, self._blocks))
        pairs = _turned(self._blocks, aligned, self._pairs)
        return aligned, _distances(len(aligned), pairs)

    def below(
        self,
        others: Sequence[Block],
        pairs: Sequence[Pair],
        handovers: Sequence[Handover],
        limit: int | None,
        peak: int,
    ) -> Placement | None:
        """The smallest placement that is found; None if none is below ``limit`` bytes.

        ``others`` come after the blocks, and ``pairs`` are those with them. A placement of ``peak``
        bytes ends the search.
        """
        blocks = (*self._blocks, *others)
        found = _search(blocks, handovers, _joined(self._distances, others, pairs), peak, limit)
        if not handovers or (found is not None and found.arena_bytes <= peak):
            return found
        bound = found.arena_bytes if found is not None else limit
        # In a chain of blocks that replace each other, each result begins before its source. If the
        # first block is at the arena's start, there is no room for that, so try from the other end.
        grain = max(block.alignment for block in blocks)
        aligned = (*self._turned[0], *map(_aligned, others))
        turned = _turned(blocks, aligned, pairs)
        # Sizes are aligned there, so without a placement yet a few bytes more may do.
        most = bound if found is not None or bound is None else bound + grain
        distances = _joined(self._turned[1], others, turned)
        mirrored = _search(aligned, _mirrored(blocks, handovers), distances, peak, most)
        if mirrored is None:
            return found
        end = -(-mirrored.arena_bytes // grain) * grain
        placed = zip(mirrored.offsets, aligned, strict=True)
        offsets = tuple(end - offset - block.size_bytes for offset, block in placed)
        used = max(offset + block.size_bytes for offset, block in zip(offsets, blocks, strict=True))
        return Placement(offsets, used) if limit is None or used < limit else None


def _distances(count: int, pairs: Iterable[Pair]) -> Distances:
    """The distances of that many blocks."""
    return _joined([[] for _ in range(count)], (), pairs)


def _joined(known: Distances, others: Sequence[Block], pairs: Iterable[Pair]) -> Distances:
    """The distances ``known`` of blocks, and those of other pairs of them and others."""
    found = [*map(list, known), *([] for _ in others)]
    for i, j, own_low, own_high, low, high in pairs:
        found[i].append((j, low - own_high, high - own_low))
        found[j].append((i, own_low - high, own_high - low))
    return found


def _search(
    blocks: Sequence[Block],
    handovers: Sequence[Handover],
    distances: Distances,
    peak: int,
    limit: int | None,
) -> Placement | None:
    """The best of all orders, from one end; None if none takes less than ``limit`` bytes."""
    bound = _FAR if limit is None else limit
    if peak >= bound:
        return None
    first_fit = _FirstFit(blocks, handovers, distances)
    rounds = max(1, SEARCH_BUDGET_PAIRS // (len(blocks) ** 2 * len(_ORDERS)))
    best: tuple[int, ...] | None = None
    for key in _ORDERS:
        order = sorted(range(len(blocks)), key=[key(block) for block in blocks].__getitem__)
        seen = set()
        first_fit.begin(order)
        for left in reversed(range(rounds)):
            # A placement that is no better only says which order is next.
            if not first_fit.placed(order, _FAR if left else bound):
                break
            offsets = first_fit.offsets
            ends = [offset + size for offset, size in zip(offsets, first_fit.sizes, strict=True)]
            needed = max(ends)
            if needed < bound:
                best, bound = tuple(offsets), needed
            if needed <= peak:
                break
            # The block that ends highest found no room below: let it choose first next time.
            top = ends.index(needed)
            order.remove(top)
            order.insert(0, top)
            first_fit.move_to_front(top)
            if tuple(order) in seen:
                break
            seen.add(tuple(order))
        if best is not None and bound <= peak:
            break
    return None if best is None else Placement(best, bound)


def _aligned(block: Block) -> Block:
    """The block with a size that begins aligned when it ends aligned."""
    size = -(-block.size_bytes // block.alignment) * block.alignment
    return block if size == block.size_bytes else replace(block, size_bytes=size)


def _turned(blocks: Sequence[Block], aligned: Sequence[Block], pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs as they are when offsets are counted from the arena's end."""

    def turned(i: int, low: int, high: int) -> tuple[int, int]:
        size = aligned[i].size_bytes
        if not blocks[i].parts:
            return 0, size
        return (size - high, size - low) if high else (0, 0)

    return [
        (i, j, *turned(i, own_low, own_high), *turned(j, low, high))
        for i, j, own_low, own_high, low, high in pairs
    ]


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
            own_low, own_high = block.needed(other.first, other.last)
            low, high = other.needed(block.first, block.last)
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


class _FirstFit:
    """Places blocks one by one, each at the lowest offset that is free while it lives."""

    def __init__(
        self, blocks: Sequence[Block], handovers: Sequence[Handover], distances: Distances
    ) -> None:
        self.sizes = [block.size_bytes for block in blocks]
        self._alignments = [block.alignment for block in blocks]
        self._apart = distances
        # Of each block: another one that is handed over, its distances, and what they leave free.
        self._handed: list[list[tuple[int, int, int, Free]]] = [[] for _ in blocks]
        for one in handovers:
            self._hand_over(one.source, one.result, one.before)
            self._hand_over(one.result, one.source, one.behind)
        self.offsets: list[int] = []
        self._ranks: list[int] = []
        self._is_due: list[bool] = []

    def _hand_over(self, own: int, other: int, free: Free) -> None:
        """Let a block overlap another one as far as that is handed over."""
        apart = self._apart[own]
        for place, one in enumerate(apart):
            if one[0] == other:
                self._handed[own].append((*one, free))
                del apart[place]
                return

    def _beside(self, i: int) -> Iterator[int]:
        """The blocks that are alive together with block ``i``."""
        yield from (one[0] for one in self._apart[i])
        yield from (one[0] for one in self._handed[i])

    def begin(self, order: Sequence[int]) -> None:
        """Blocks are placed in this order next, all of them."""
        self.offsets = [0] * len(order)
        self._ranks = list(self.offsets)
        for rank, i in enumerate(order):
            self._ranks[i] = rank
        self._is_due = [True] * len(order)

    def move_to_front(self, top: int) -> None:
        """Place block ``top`` first next time."""
        rank = self._ranks[top]
        self._is_due[top] = True
        for other in self._beside(top):
            if self._ranks[other] < rank:
                self._is_due[other] = True
        self._ranks[top] = min(self._ranks) - 1

    def placed(self, order: Sequence[int], limit: int) -> bool:
        """Set the offset of each block; False if one ends at ``limit`` or after it.

        Only blocks before which something changed get another offset.
        """
        offsets, ranks, is_due = self.offsets, self._ranks, self._is_due
        for i in order:
            if not is_due[i]:
                continue
            is_due[i] = False
            rank = ranks[i]
            taken = [
                (offsets[j] + below, offsets[j] + above)
                for j, below, above in self._apart[i]
                if ranks[j] < rank
            ]
            for j, below, above, free in self._handed[i]:
                if ranks[j] < rank:
                    taken += free(offsets[j], offsets[j] + below, offsets[j] + above)
            taken.sort()
            alignment, offset = self._alignments[i], 0
            for low, high in taken:
                if offset <= low:
                    break
                if high > offset:
                    offset = -(-high // alignment) * alignment
            if offset + self.sizes[i] >= limit:
                return False
            if offset != offsets[i]:
                offsets[i] = offset
                for j in self._beside(i):
                    if ranks[j] > rank:
                        is_due[j] = True
        return True
