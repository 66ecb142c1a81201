"""Snapshots as calls, and a chip's model from its board file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from utvm_deploy.base.errors import BoardError, ProbeError
from utvm_deploy.boards.board import load_board
from utvm_deploy.emulator import CycleModel
from utvm_deploy.emulator.counters import NAMES, Counters, between


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


def test_regions_of_a_kind_that_differ_are_an_error() -> None:
    board = load_board("mps2_an500")
    other = replace(board.memory[0], name="more", address=0x0800_0000, miss_cycles=50)
    with pytest.raises(BoardError, match=r"kind flash differ in miss_cycles \(22, 50\)"):
        CycleModel.for_board(replace(board, memory=(*board.memory, other)))


def test_ways() -> None:
    board = load_board("mps2_an500")
    model = CycleModel.for_board(replace(board, cpu=replace(board.cpu, dcache_ways=2)))
    assert model.dcache is not None and model.dcache.ways == 2
    with pytest.raises(BoardError, match="cannot have 3 ways"):
        CycleModel.for_board(replace(board, cpu=replace(board.cpu, dcache_ways=3)))
