"""The allocator, without a device."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.device.workspace_blocks import ALIGNMENT, ZONE_BYTES, Block, Memory, zone_bytes

START, SIZE = 0x2001_0004, 4096


def check_invariants(memory: Memory) -> None:
    """Nothing overlaps, nothing is lost, everything is aligned and inside."""
    taken = sorted((block.start, block.end) for block in memory.blocks())
    for (_, end), (start, _) in itertools.pairwise(taken):
        assert end <= start
    for block in memory.blocks():
        assert block.start >= START and block.end <= START + SIZE
        assert block.start == block.address - ZONE_BYTES
        assert block.address % ALIGNMENT == 0
        assert block.address + block.size + ZONE_BYTES <= block.end
    assert memory.free_bytes + sum(end - start for start, end in taken) == SIZE


@given(st.lists(st.one_of(st.integers(0, 700), st.none()), max_size=60), st.randoms())
def test_any_order_of_allocating_and_freeing(sizes: list[int | None], random: object) -> None:
    memory = Memory("board", START, SIZE)
    blocks: list[Block] = []
    for size in sizes:
        if size is None:
            if blocks:
                memory.free(blocks.pop(random.randrange(len(blocks))))  # type: ignore[attr-defined]
        elif memory.peek(size) is None:
            with pytest.raises(DeviceError, match="no room"):
                memory.allocate(size, "x")
        else:
            expected = memory.peek(size)
            blocks.append(memory.allocate(size, "x"))
            assert blocks[-1].address == expected
        check_invariants(memory)
    for block in blocks:
        memory.free(block)
    assert memory.largest_free_bytes == memory.free_bytes == SIZE


def test_the_smallest_piece_that_fits_is_taken() -> None:
    memory = Memory("board", 0, 65536)
    blocks = [memory.allocate(size, "x") for size in (1024, 32, 256, 32)]
    memory.free(blocks[0])
    memory.free(blocks[2])
    assert memory.allocate(200, "x").address == blocks[2].address
    assert memory.allocate(1000, "x").address == blocks[0].address


@pytest.mark.parametrize("alignment", [1, 32, 64, 1024])
def test_alignment(alignment: int) -> None:
    memory = Memory("board", 32, 65536)
    for _ in range(4):
        block = memory.allocate(10, "x", alignment)
        assert block.address % max(alignment, ALIGNMENT) == 0
    assert memory.free_bytes < 65536


def test_no_room_says_how_much_is_missing() -> None:
    memory = Memory("board", 0, 1024)
    middle = [memory.allocate(192, "x") for _ in range(4)][1]
    memory.free(middle)
    with pytest.raises(DeviceError) as caught:
        memory.allocate(1000, "tensor big (int8 [1000])")
    assert str(caught.value) == (
        "board has no room for tensor big (int8 [1000]): with its red zones it needs 1,064 bytes, "
        "and 808 bytes are missing (the largest free block has 256 bytes, 256 of 1,024 are free in "
        "all); free something first"
    )


def test_wrong_frees_are_refused() -> None:
    memory = Memory("board", 0, 1024)
    block = memory.allocate(1, "x")
    memory.free(block)
    with pytest.raises(DeviceError, match="x was freed already"):
        memory.free(block)
    with pytest.raises(DeviceError, match="starts at 0x28"):
        memory.block_at(40)
    with pytest.raises(DeviceError, match="-1 bytes"):
        memory.allocate(-1, "x")


def test_zones_of_neighbours_differ() -> None:
    # So that copying too much from beside one tensor is seen beside another.
    zones = {zone_bytes(32 * line) for line in range(256)}
    assert len(zones) == 256
    assert zone_bytes(3)[1:] == zone_bytes(4)[:-1]
