"""What a board needs that runs within this process: its machine, and a compiler for it."""

from __future__ import annotations

import pytest

from utvm_deploy.base.errors import MissingTool
from utvm_deploy.boards.board import Board


def skip_without_machine(board: Board) -> None:
    """Skip the test if the board is of this kind, and something is missing."""
    if board.cpu.target.machine is None:
        return
    try:
        board.cpu.target.machine.check()
        board.cpu.toolchain.prepare()
    except MissingTool as error:
        pytest.skip(str(error))
