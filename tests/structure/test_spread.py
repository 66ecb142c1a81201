"""The mark ``spread`` leaves out pairs, but no case and no board."""

from __future__ import annotations

import pytest
from spread import kept, left_out

BOARDS = ("a", "b", "c", "d")


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_every_case_and_every_board_runs(count: int) -> None:
    cases = [str(number) for number in range(7)]
    runs = kept(cases, BOARDS, count)
    for case in cases:
        assert len([board for one, board in runs if one == case]) == min(count, 4)
    assert {board for _, board in runs} == set(BOARDS)


@pytest.mark.spread(1)
@pytest.mark.parametrize("case", ["one", "two"])
def test_this_one_is_spread(board: object, case: str, request: pytest.FixtureRequest) -> None:
    assert board and case
    items = request.session.items
    mine = [item for item in items if item.name.startswith("test_this_one_is_spread")]
    if not request.config.getoption("--every-board"):
        assert left_out(mine) <= set(mine) and len(mine) <= 4


@pytest.mark.spread(2, among=("mps2_an385", "mps3_an547"))
def test_this_one_is_on_named_boards(board: object, request: pytest.FixtureRequest) -> None:
    assert board
    items = request.session.items
    name = "test_this_one_is_on_named_boards"
    mine = {item.name.removeprefix(name) for item in items if item.name.startswith(name)}
    if not request.config.getoption("--every-board"):
        assert mine <= {"[host]", "[mps2_an385]", "[mps3_an547]"}
    assert mine
