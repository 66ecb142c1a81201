"""Zephyr's images and projects link the user's build of the driver."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from double_driver import double_of
from make_golden import MODEL, exact, golden

import utvm_deploy
from utvm_deploy.backends.ethos_u import regions
from utvm_deploy.backends.ethos_u.configurations import configuration
from utvm_deploy.backends.ethos_u.vela import Estimate, program_in
from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.project import create_project, find_ethos_u
from utvm_deploy.results.verifying.on_board import verify

CONFIG = "ethos-u55-128"
BOARD = "mps3_an547"
PREFIX = "arm-none-eabi-"
needs_compiler = pytest.mark.skipif(
    shutil.which(f"{PREFIX}gcc") is None,
    reason="needs Arm's GCC: apt-get install gcc-arm-none-eabi",
)
needs_zephyr = pytest.mark.skipif(
    "ZEPHYR_BASE" not in os.environ,
    reason="ZEPHYR_BASE is not set: no Zephyr to build with (see docs/guides/zephyr.md)",
)


def samples() -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8) for _ in range(3)]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CompiledModel, Board]:
    """The digits with a double of the driver for the board's core."""
    program = program_in(golden(CONFIG), configuration(CONFIG))
    estimate = Estimate(9_000, 500_000_000, "a system")
    monkeypatch.setattr(regions, "compiled_by_vela", lambda *_: (program, estimate))
    monkeypatch.setattr(regions, "refused_by_vela", lambda *_: frozenset())
    board = with_template(load_board(BOARD), "zephyr")
    flags = (*board.cpu.compiler_flags, "-ffreestanding")
    exact_one = exact(MODEL, program)
    driver = double_of(tmp_path / "driver", exact_one, samples(), prefix=PREFIX, flags=flags)
    backend = find_ethos_u(CONFIG, board, driver)
    return utvm_deploy.compile(MODEL, board, plugin=backend), board


@needs_compiler
def test_a_project_names_the_library(tmp_path: Path, made: tuple[CompiledModel, Board]) -> None:
    tree = create_project(*made, tmp_path / "tree")
    text = (tree / "template" / "libraries.cmake").read_text()
    folder = tmp_path / "driver"
    assert f"set(ETHOS_U55_128_LIBRARY {folder}/libethosu_core_driver.a CACHE FILEPATH" in text
    assert f"set(ETHOS_U55_128_INCLUDE_DIRS {folder} CACHE STRING" in text
    assert 'target_link_libraries(app PRIVATE "${ETHOS_U55_128_LIBRARY}")' in text


@needs_compiler
@needs_zephyr
@pytest.mark.emulator
@pytest.mark.slow
def test_the_double_computes_under_zephyr(made: tuple[CompiledModel, Board]) -> None:
    compiled, board = made
    with utvm_deploy.connect(board) as device:
        given = Samples(tuple((one,) for one in samples()), None, "three")
        found = verify(device.load(compiled), MODEL, given)
    assert found.ok, found
