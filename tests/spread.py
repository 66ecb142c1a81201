"""The mark ``spread(count)``: each case on the host and on ``count`` emulated boards, in turn.

A test with a board and other parameters is a product. With the mark every case still runs, and
every board still runs some cases. ``--every-board`` runs the whole product.

``spread(count, among=(BOARD, ...))`` takes these emulated boards only: where another test makes the
same claim on the others, or where their kernels are the same C.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest

from utvm_deploy.boards.board import load_board

OPTION = "--every-board"

#: A shipped board, read once; hundreds of tests ask for each.
known_board = functools.cache(load_board)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="run tests marked `spread` on every board")


def kept(cases: Sequence[str], boards: Sequence[str], count: int) -> set[tuple[str, str]]:
    """Which pairs of case and emulated board run: ``count`` boards a case, in turn."""
    return {
        (case, boards[(index * count + step) % len(boards)])
        for index, case in enumerate(cases)
        for step in range(min(count, len(boards)))
    }


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The items of marked tests that do not run without ``--every-board``."""
    of_test: dict[str, list[tuple[pytest.Item, str, str, pytest.Mark]]] = {}
    for item in items:
        mark = item.get_closest_marker("spread")
        # Real boards are asked for by name.
        if mark is None or not isinstance(item, pytest.Function) or is_real(item):
            continue
        # Modules that give imported tests a device of their own have no boards to choose from.
        if "board" not in item.fixturenames:
            continue
        board = str(item.callspec.params["board"])
        name = item.nodeid.partition("[")[0]
        case = item.callspec.id.replace(board, "")
        of_test.setdefault(name, []).append((item, case, board, mark))
    found = set()
    for rows in of_test.values():
        cases = list(dict.fromkeys(case for _, case, _, _ in rows))
        boards = list(dict.fromkeys(board for _, _, board, _ in rows if board != "host"))
        mark = rows[0][3]
        among = mark.kwargs.get("among", boards)
        for board in among:
            known_board(board)  # refuses a name that is none
        runs = kept(cases, among, *mark.args)
        found |= {i for i, case, board, _ in rows if board != "host" and (case, board) not in runs}
    return found


def is_real(item: pytest.Item) -> bool:
    return item.get_closest_marker("hardware") is not None
