"""Tests of devices, taken from tests/device, over sessions with boards of a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from server_process import Server, serving

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
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
    test_a_new_image_takes_everything_away,
    test_a_process_that_died,
    test_a_restart_that_nobody_asked_for,
    test_a_wild_write_is_an_error_on_that_call,
    test_an_endless_loop_is_an_error_on_that_call,
    test_everything_is_lost_at_a_reset,
)

__all__ = [
    "test_a_call_may_be_given_any_time",
    "test_a_model_in_ram",
    "test_a_new_image_takes_everything_away",
    "test_a_process_that_died",
    "test_a_restart_that_nobody_asked_for",
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, image_cache: Path) -> Iterator[Server]:
    """A server that runs programs of its clients, too."""
    data, env = tmp_path_factory.mktemp("server") / "data", {"UTVM_CACHE": str(image_cache)}
    with serving(data, "--allow-code", env=env) as started:
        yield started


def connected(server: Server, board: str) -> Device:
    return utvm_deploy.connect(f"utvm://{server.url.removeprefix('http://')}/{board}")


@pytest.fixture
def device(server: Server) -> Iterator[Device]:
    """In place of the boards of this computer."""
    with connected(server, "mps2_an500") as found:
        yield found


@pytest.fixture
def host(server: Server) -> Iterator[Device]:
    """A process on the server's computer."""
    with connected(server, "host") as found:
        yield found


@pytest.fixture(scope="module")
def digits() -> Callable[[Board], CompiledModel]:
    """The digits model for a board, compiled once."""

    @cache
    def compiled(name: str) -> CompiledModel:
        return utvm_deploy.compile(data_dir("models") / "digits.tflite", load_board(name))

    return lambda board: compiled(board.name)
