"""A new target is a folder and one row: the pretend target goes the whole way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pretend.target import HERE, PRETEND

import utvm_deploy
from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.process import TOOLS
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.kernels.choose.lowering import families_for
from utvm_deploy.project import create_project
from utvm_deploy.targets.table import CORES, TARGETS, TIMINGS, registered, target_of

MODEL = Path(utvm_deploy.__file__).parents[1] / "models" / "digits.tflite"


@pytest.fixture
def pretend() -> Iterator[Board]:
    with registered(PRETEND):
        yield load_board(HERE / "pretend.toml")


def test_a_row_is_all_that_the_table_needs(pretend: Board) -> None:
    assert target_of("pretend-1") is PRETEND
    assert pretend.is_host and pretend.cpu.compiler_flags == ("-DPRETEND",)
    assert families_for("pretend-1") == ("generic",)


def test_the_row_is_gone_afterwards() -> None:
    tables = TARGETS, CORES, TIMINGS, TOOLS
    before = [dict(table) for table in tables]
    programs = {"cc": ("compile", "get cc"), "pretend-gdb": ("debug", "get it")}
    with registered(replace(PRETEND, toolchain=replace(PRETEND.toolchain, programs=programs))):
        assert "pretend-1" in CORES and TOOLS["cc"] == ("compile", "get cc")
    assert [dict(table) for table in tables] == before
    with pytest.raises(BoardError, match="no target has the core 'pretend-1'"):
        target_of("pretend-1")
    with pytest.raises(BoardError, match="core"):
        load_board(HERE / "pretend.toml")


def test_no_two_targets_share_a_tag_or_a_core() -> None:
    assert len({one.tag for one in TARGETS.values()}) == len(TARGETS)
    assert sum(len(one.cores) for one in TARGETS.values()) == len(CORES)


def test_a_board_cannot_have_a_template_of_another_target(pretend: Board, tmp_path: Path) -> None:
    path = tmp_path / "pretend.toml"
    path.write_text(pretend.source.replace('templates = ["host"]', 'templates = ["zephyr"]'))
    with pytest.raises(BoardError, match="do not fit the core 'pretend-1'"):
        load_board(path)


@pytest.mark.tools
def test_a_model_runs_on_the_pretend_target(
    pretend: Board, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = np.arange(64, dtype=np.int8).reshape(1, 8, 8, 1)
    outputs = []
    for one in (pretend, load_board("host")):
        compiled = utvm_deploy.compile(MODEL, board=one)
        with caplog.at_level(logging.WARNING):
            create_project(compiled, one, tmp_path / one.name)
        with utvm_deploy.connect(one) as device:
            outputs.append(device.load(compiled)(inputs).tobytes())
    assert outputs[0] == outputs[1]
    # Nothing guards the core, and a user is told so.
    (caution,) = pretend.cautions
    assert "no guard is written for the core pretend-1" in caution
    assert {one.getMessage() for one in caplog.records} == {f"pretend: {caution}"}
    template = tmp_path / "pretend" / "template"
    assert (template / "guard_none.c").is_file() and not (template / "guard.c").exists()
    assert (tmp_path / "host" / "template" / "guard.c").is_file()


def test_a_target_that_is_there_is_not_replaced() -> None:
    with (
        pytest.raises(BoardError, match="has a target 'host' already"),
        registered(replace(PRETEND, name="host")),
    ):
        pass
