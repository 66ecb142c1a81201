"""The arena planner's algorithm: never an overlap, near the lower bound, the same every time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.placement import (
    Block,
    Handover,
    Part,
    Placement,
    live_peak,
    place,
    verify,
)

STEPS = 12


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    count = draw(st.integers(1, 24))
    made = []
    for number in range(count):
        first = draw(st.integers(-1, STEPS))
        last = draw(st.integers(first, STEPS))
        size = draw(st.integers(1, 4096))
        made.append(Block(f"b{number}", size, first, last, draw(st.sampled_from([1, 4, 16]))))
    return made


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(blocks())
def test_blocks_alive_together_never_overlap(given_blocks: list[Block]) -> None:
    placement = place(given_blocks)
    # Checked independently of verify(): byte by byte, at every step.
    for step in range(-1, STEPS + 1):
        owner = np.full(placement.arena_bytes, -1)
        for index, (block, offset) in enumerate(zip(given_blocks, placement.offsets, strict=True)):
            if block.first <= step <= block.last:
                assert offset % block.alignment == 0
                taken = owner[offset : offset + block.size_bytes]
                assert taken.size == block.size_bytes
                assert (taken == -1).all()
                taken[:] = index
    verify(given_blocks, placement)
    assert placement == place(given_blocks)
    assert placement.arena_bytes >= live_peak(given_blocks)


@st.composite
def parted_blocks(draw: st.DrawFn) -> list[Block]:
    """Blocks whose parts are needed for times of their own."""
    made = []
    for block in draw(blocks()):
        borders = draw(st.sets(st.integers(0, block.size_bytes), max_size=4))
        edges = sorted({0, block.size_bytes, *borders})
        parts = []
        for start, end in itertools.pairwise(edges):
            first = draw(st.integers(block.first, block.last))
            parts.append(Part(start, end, first, draw(st.integers(first, block.last))))
        made.append(replace(block, parts=tuple(parts)))
    return made


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(parted_blocks())
def test_parts_never_overlap_while_they_are_needed(given_blocks: list[Block]) -> None:
    placement = place(given_blocks)
    for step in range(-1, STEPS + 1):
        owner = np.full(placement.arena_bytes, -1)
        for index, (block, offset) in enumerate(zip(given_blocks, placement.offsets, strict=True)):
            for part in block.parts:
                if part.first <= step <= part.last:
                    taken = owner[offset + part.start : offset + part.end]
                    assert taken.size == part.end - part.start
                    assert (taken == -1).all()
                    taken[:] = index
    verify(given_blocks, placement)
    assert placement.arena_bytes >= live_peak(given_blocks)


def test_a_block_begins_on_the_part_of_another_that_is_done_with() -> None:
    image = Block("image", 64, -1, 9, 16, (Part(0, 32, -1, 4), Part(32, 64, -1, 9)))
    result = Block("result", 32, 5, 9, 16)
    assert place([image, result]).arena_bytes == 64
    with pytest.raises(CompileError, match="overlap"):
        verify([image, replace(result, first=4)], Placement((0, 0), 64))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_blocks_overlap_only_as_their_handover_allows(data: st.DataObject) -> None:
    given_blocks = data.draw(blocks())
    handovers = []
    pairs = itertools.permutations(range(len(given_blocks)), 2)
    for source, result in pairs:
        step = given_blocks[source].last
        is_next = given_blocks[result].first == step != given_blocks[source].first
        if is_next and all(result != h.result and source != h.source for h in handovers):
            lag = 16 * data.draw(st.integers(-100, 100))
            handovers.append(Handover(source, result, lag, data.draw(st.booleans())))
    placement = place(given_blocks, handovers)
    verify(given_blocks, placement, handovers)
    assert placement.arena_bytes >= live_peak(given_blocks, handovers)
    allowed = {(h.source, h.result): h for h in handovers}
    placed = list(zip(given_blocks, placement.offsets, strict=True))
    for (i, (one, start)), (j, (other, begin)) in itertools.combinations(enumerate(placed), 2):
        assert start % one.alignment == 0 <= start <= placement.arena_bytes - one.size_bytes
        apart = start >= begin + other.size_bytes or begin >= start + one.size_bytes
        if apart or not (one.first <= other.last and other.first <= one.last):
            continue
        found = allowed.get((i, j)) or allowed[j, i]
        distance = placement.offsets[found.source] - placement.offsets[found.result]
        assert distance == found.lag_bytes if found.is_exact else distance >= found.lag_bytes


def test_a_chain_that_is_handed_on_takes_little_more_than_its_largest_block() -> None:
    chain = [Block(f"t{i}", 4096, i, i + 1, 16) for i in range(8)]
    handovers = [Handover(i, i + 1, 64) for i in range(7)]
    placement = place(chain, handovers)
    # Each begins 64 bytes before the one that it is made of.
    assert live_peak(chain, handovers) == 4096 + 64
    assert placement.arena_bytes == 4096 + 7 * 64


def test_the_verifier_knows_how_close_a_handover_may_be() -> None:
    pair = [Block("a", 32, 0, 1, 16), Block("b", 32, 1, 2, 16)]
    verify(pair, Placement((32, 0), 64), [Handover(0, 1, 32)])
    verify(pair, Placement((16, 0), 48), [Handover(0, 1, 16)])
    verify(pair, Placement((0, 16), 48), [Handover(0, 1, -16)])
    for handover in (Handover(0, 1, 32), Handover(0, 1, 0, is_exact=True)):
        with pytest.raises(CompileError, match="overlap"):
            verify(pair, Placement((16, 0), 48), [handover])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=15))
def test_a_chain_takes_little_more_than_its_largest_pair(sizes: list[int]) -> None:
    chain = [Block(f"t{i}", size, i, i + 1, 1) for i, size in enumerate(sizes)]
    largest_pair = max(a + b for a, b in itertools.pairwise(sizes))
    assert live_peak(chain) == largest_pair
    assert place(chain).arena_bytes <= 1.2 * largest_pair + 1


def test_long_lived_block_does_not_split_the_arena() -> None:
    shortcut = Block("shortcut", 100, 0, 9, 16)
    others = [Block(f"t{i}", 160, i, i + 1, 16) for i in range(9)]
    assert place([shortcut, *others]).arena_bytes <= 432


def test_nothing_needs_nothing() -> None:
    assert place([]) == Placement((), 0)


@pytest.mark.parametrize(
    ("offsets", "arena", "message"),
    [
        ((0, 8), 32, "lets b and a overlap"),
        ((0, 15), 31, "lets b and a overlap"),
        ((15, 0), 31, "lets b and a overlap"),
        ((0, 17), 40, "puts b at 17"),
        ((0, 16), 24, "puts b at 16..32 of 24"),
        ((-16, 16), 32, "puts a at -16"),
    ],
)
def test_verifier_finds_every_kind_of_fault(
    offsets: tuple[int, int], arena: int, message: str
) -> None:
    alignment = 1 if 15 in offsets else 8
    a, b = Block("a", 16, 0, 1, alignment), Block("b", 16, 1, 2, alignment)
    with pytest.raises(CompileError, match=message):
        verify([a, b], Placement(offsets, arena))


def test_verifier_accepts_the_same_bytes_at_different_times() -> None:
    verify([Block("a", 16, 0, 1, 8), Block("b", 16, 2, 2, 8)], Placement((0, 0), 16))
