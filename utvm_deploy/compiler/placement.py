"""Blocks with lifetimes -> offsets in one arena. Knows nothing of graphs.

Optimal placement is NP-hard; several first-fit orders, each improved by moving the block that
sticks out to the front, reach the lower bound on the networks that matter here. Equal input gives
equal output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from utvm_deploy.errors import CompileError

#: Block pairs looked at in one search: about half a second at worst, far less when the lower bound
#: is met early, as it nearly always is.
SEARCH_BUDGET_PAIRS = 1_000_000


@dataclass(frozen=True)
class Block:
    """Bytes that must stay untouched from step ``first`` to step ``last``, both included."""

    name: str
    size_bytes: int
    first: int
    last: int
    alignment: int

    def meets(self, other: Block) -> bool:
        """Whether there is a step at which both are alive."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placement:
    """An offset for every block, in the order the blocks were given."""

    offsets: tuple[int, ...]
    arena_bytes: int


def live_peak(blocks: Sequence[Block]) -> int:
    """The most bytes alive at one step: no placement can be smaller."""
    steps = {block.first for block in blocks}
    return max(
        (sum(b.size_bytes for b in blocks if b.first <= s <= b.last) for s in steps), default=0
    )


def place(blocks: Sequence[Block]) -> Placement:
    """The smallest placement that the search finds."""
    if not blocks:
        return Placement((), 0)
    peak = live_peak(blocks)
    neighbours = [
        [j for j, other in enumerate(blocks) if j != i and block.meets(other)]
        for i, block in enumerate(blocks)
    ]
    rounds = max(1, SEARCH_BUDGET_PAIRS // (len(blocks) ** 2 * len(_ORDERS)))
    best: Placement | None = None
    for key in _ORDERS:
        order = sorted(range(len(blocks)), key=lambda i: (*key(blocks[i]), i))
        seen = set()
        for _ in range(rounds):
            placement = _first_fit(blocks, neighbours, order)
            if best is None or placement.arena_bytes < best.arena_bytes:
                best = placement
            if best.arena_bytes == peak:
                return best
            # Whatever ends highest found no room below: let it choose first next time.
            top = max(order, key=lambda i: (placement.offsets[i] + blocks[i].size_bytes, -i))
            order.remove(top)
            order.insert(0, top)
            if tuple(order) in seen:
                break
            seen.add(tuple(order))
    assert best is not None
    return best


def verify(blocks: Sequence[Block], placement: Placement) -> None:
    """Raise CompileError unless all blocks are inside, aligned, and disjoint while alive."""
    placed = list(zip(blocks, placement.offsets, strict=True))
    for index, (block, offset) in enumerate(placed):
        end = offset + block.size_bytes
        if offset < 0 or end > placement.arena_bytes or offset % block.alignment:
            raise CompileError(
                f"the arena plan puts {block.name} at {offset}..{end} of {placement.arena_bytes} "
                f"bytes with alignment {block.alignment}; this is a bug in the planner"
            )
        for other, start in placed[:index]:
            if block.meets(other) and offset < start + other.size_bytes and start < end:
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
    blocks: Sequence[Block], neighbours: Sequence[Sequence[int]], order: Sequence[int]
) -> Placement:
    """Place in the given order, each block at the lowest offset that is free while it lives."""
    offsets: dict[int, int] = {}
    for i in order:
        size, alignment = blocks[i].size_bytes, blocks[i].alignment
        taken = sorted(
            (offsets[j], offsets[j] + blocks[j].size_bytes) for j in neighbours[i] if j in offsets
        )
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, -(-end // alignment) * alignment)
        offsets[i] = offset
    return Placement(
        tuple(offsets[i] for i in range(len(blocks))),
        max(offsets[i] + block.size_bytes for i, block in enumerate(blocks)),
    )
