"""Snapshots as calls, and a chip's model from its board file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from utvm_deploy.base.errors import BoardError, ProbeError
from utvm_deploy.boards.board import load_board
from utvm_deploy.targets.emulator import CycleModel
from utvm_deploy.targets.emulator.counters import NAMES, Counters, between


def snapshots(*cycles: int) -> list[Counters]:
    """What a timer leaves that is read before and after calls that took so long."""
    taken, now = [], 0
    for one in cycles:
        taken.append(Counters((now, *[0] * (len(NAMES) - 1))))
        now += one
        taken.append(Counters((now, *[0] * (len(NAMES) - 1))))
    return taken


def cycles_of(found: list[Counters]) -> list[int]:
    return [one["memory"] for one in found]


def test_the_latest_run_of_calls_is_found() -> None:
    taken = snapshots(5, 7, 9, 5, 7, 1)
    (five, seven) = between(taken, [5, 7])
    assert cycles_of([five, seven]) == [5, 7]
    assert five == taken[7] - taken[6]


def test_calls_in_several_parts_are_found() -> None:
    assert cycles_of(between(snapshots(2, 5, 7, 2, 9, 3), [5, 7, 9])) == [5, 7, 9]
    # A call that was stopped was read once.
    assert cycles_of(between([*snapshots(4)[:1], *snapshots(2, 5, 2, 9)], [5, 9])) == [5, 9]


def test_calls_that_were_not_made() -> None:
    with pytest.raises(ProbeError, match="hold no run of 2 calls"):
        between(snapshots(5, 7), [7, 5])


def test_a_board_file_may_say_what_misses_cost() -> None:
    board = load_board("mps2_an500")
    flash, *others = board.memory
    slow = replace(flash, miss_cycles=40, fetch_miss_cycles=30)
    model = CycleModel.for_board(replace(board, memory=(slow, *others)))
    assert (model.flash_miss_cycles, model.ram_miss_cycles) == (40, 22)
    assert (model.flash_fetch_miss_cycles, model.ram_fetch_miss_cycles) == (30, 22)


def test_weights_cost_what_their_region_says() -> None:
    board = load_board("mps2_an500")
    slow = replace(board.memory[0], name="qspi", address=0x6000_0000, miss_cycles=350, boot=False)
    board = replace(board, memory=(*board.memory, slow))
    assert CycleModel.for_board(board).flash_miss_cycles == 22
    board = replace(board, project=replace(board.project, weights="qspi"))
    model = CycleModel.for_board(board)
    assert (model.flash_miss_cycles, model.flash_fetch_miss_cycles) == (350, 22)
    assert ("flash", 0x6000_0000) in {(one.kind, one.address) for one in model.cached}


def test_ways() -> None:
    board = load_board("mps2_an500")
    model = CycleModel.for_board(replace(board, cpu=replace(board.cpu, dcache_ways=2)))
    assert model.dcache is not None and model.dcache.ways == 2
    with pytest.raises(BoardError, match="cannot have 3 ways"):
        CycleModel.for_board(replace(board, cpu=replace(board.cpu, dcache_ways=3)))
