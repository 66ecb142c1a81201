"""The arena planner's algorithm: never an overlap, near the lower bound, the same every time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm_deploy.compiler.placement import Block, Placement, live_peak, place, verify
from utvm_deploy.errors import CompileError

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
        ((0, 17), 40, "puts b at 17"),
        ((0, 16), 24, "puts b at 16..32 of 24"),
        ((-16, 16), 32, "puts a at -16"),
    ],
)
def test_verifier_finds_every_kind_of_fault(
    offsets: tuple[int, int], arena: int, message: str
) -> None:
    a, b = Block("a", 16, 0, 1, 8), Block("b", 16, 1, 2, 8)
    with pytest.raises(CompileError, match=message):
        verify([a, b], Placement(offsets, arena))


def test_verifier_accepts_the_same_bytes_at_different_times() -> None:
    verify([Block("a", 16, 0, 1, 8), Block("b", 16, 2, 2, 8)], Placement((0, 0), 16))
