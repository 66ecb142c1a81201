"""Tests of devices, taken from tests/device, over a session with an emulated board of a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from server_process import Server

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.device import Device

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "device"))
from test_lazy import test_a_call_may_be_given_any_time, test_repeats_and_ticks
from test_modules import (
    test_a_model_in_ram,
    test_everything_a_module_can_do,
    test_kernels_as_modules,
    test_no_room_for_a_module,
)
from test_red_zones import test_a_write_beside_a_tensor
from test_sessions import (
    test_a_wild_write_is_an_error_on_that_call,
    test_an_endless_loop_is_an_error_on_that_call,
    test_everything_is_lost_at_a_reset,
)

__all__ = [
    "test_a_call_may_be_given_any_time",
    "test_a_model_in_ram",
    "test_a_wild_write_is_an_error_on_that_call",
    "test_a_write_beside_a_tensor",
    "test_an_endless_loop_is_an_error_on_that_call",
    "test_everything_a_module_can_do",
    "test_everything_is_lost_at_a_reset",
    "test_kernels_as_modules",
    "test_no_room_for_a_module",
    "test_repeats_and_ticks",
]

pytestmark = [pytest.mark.tools, pytest.mark.emulator]


@pytest.fixture
def device(server: Server) -> Iterator[Device]:
    """In place of the boards of this computer."""
    where = server.url.removeprefix("http://")
    with utvm_deploy.connect(f"utvm://{where}/mps2_an500") as connected:
        yield connected


@pytest.fixture(scope="module")
def digits() -> Callable[[Board], CompiledModel]:
    """The digits model for a board, compiled once."""

    @cache
    def compiled(name: str) -> CompiledModel:
        return utvm_deploy.compile(data_dir("models") / "digits.tflite", load_board(name))

    return lambda board: compiled(board.name)
