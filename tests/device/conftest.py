"""What the tests of the device share: a process as a device, and compiled models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device


@pytest.fixture
def host() -> Iterator[Device]:
    """A device that is a process on this computer, for what does not depend on the board."""
    with utvm_deploy.connect("host") as connected:
        yield connected


@pytest.fixture(scope="session")
def digits() -> Callable[[Board], CompiledModel]:
    """The digits model for a board, compiled once."""

    @cache
    def compiled(name: str) -> CompiledModel:
        return utvm_deploy.compile(data_dir("models") / "digits.tflite", load_board(name))

    return lambda board: compiled(board.name)
