"""Level ram and RAM budgets compute layers in strips where that makes the arena smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.budgets import Budget
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch

BOARD = "mps2_an500"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small input and output, and 16 KB of activations between them."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 32, 32, 2), 0.05, 0)
    y = m.conv2d(x, rng.integers(-99, 99, (16, 3, 3, 2), dtype=np.int8), padding="SAME")
    m.output(m.conv2d(y, rng.integers(-99, 99, (2, 3, 3, 16), dtype=np.int8), stride=2))
    return m.save(tmp_path_factory.mktemp("streaming") / "wide.tflite")


@pytest.mark.tools
@pytest.mark.parametrize("name", ["digits_float", "digits_int16x8"])
def test_strips_of_other_types_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = data_dir("models") / f"{name}.tflite"
    small = utvm_deploy.compile(model, "host", optimize="ram")
    assert any(layer.kind == "MOVE" for layer in small.layers)
    argv = ["verify", str(model), "--board", "host", "--optimize", "ram", "--samples", "2"]
    assert main(argv) == 0, capsys.readouterr().out


def test_a_ram_budget_below_a_whole_activation_is_met_in_strips(wide: Path) -> None:
    board = load_board(BOARD)
    free = compile_model(wide, board, CompileOptions(budget=Budget(ram=10**6), scratch="arena"))
    tight = compile_model(wide, board, CompileOptions(budget=Budget(ram=8 * 1024)))
    assert free.tradeoff is not None and tight.tradeoff is not None
    assert free.tradeoff.streamed == 0 and free.arena_bytes > 16 * 1024
    assert tight.tradeoff.streamed == 2 and tight.arena_bytes <= 8 * 1024
    assert tight.tradeoff.fastest_bytes == free.tradeoff.fastest_bytes


def test_the_least_arena_that_is_named_is_possible(wide: Path) -> None:
    board = load_board(BOARD)
    with pytest.raises(CompileError, match=r"RAM budget is 100 bytes") as caught:
        compile_model(wide, board, CompileOptions(budget=Budget(ram=100)))
    found = re.search(r"has ([\d,]+);", str(caught.value))
    assert found is not None
    least = int(found[1].replace(",", ""))
    assert least < 8 * 1024
    assert compile_model(wide, board, CompileOptions(budget=Budget(ram=least))).arena_bytes <= least


def test_an_archive_keeps_which_rows_a_tensor_has(wide: Path, tmp_path: Path) -> None:
    compiled = compile_model(wide, load_board(BOARD), CompileOptions(budget=Budget(ram=8 * 1024)))
    write_library(compiled, tmp_path / "m.tar")
    found = read_library(tmp_path / "m.tar")
    rows = [buffer.rows for layer in found.layers for buffer in layer.outputs]
    assert rows == [buffer.rows for layer in compiled.layers for buffer in layer.outputs]
    assert (0, 1) in rows or (0, 2) in rows


def test_rows_of_the_file_are_compared_with_strips(wide: Path) -> None:
    compiled = compile_model(wide, load_board(BOARD), CompileOptions(budget=Budget(ram=8 * 1024)))
    whole = np.arange(32 * 32 * 16, dtype=np.int16).reshape(1, 32, 32, 16)
    strip = next(
        buffer
        for layer in compiled.layers
        for buffer in layer.outputs
        if buffer.rows is not None and buffer.shape[-1] == 16 and buffer.rows[0] > 0
    )
    first, end = strip.rows or (0, 0)
    np.testing.assert_array_equal(strip.of_file(whole), whole[:, first:end])


def test_level_time_computes_layers_in_strips_where_that_costs_little(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 24, 48, 8), 0.05, 0)
    y = m.conv2d(x, rng.integers(-99, 99, (24, 3, 3, 8), dtype=np.int8), padding="SAME")
    m.output(m.conv2d(y, rng.integers(-99, 99, (8, 3, 3, 24), dtype=np.int8), stride=2))
    model = m.save(tmp_path / "costly.tflite")
    cached = compile_model(model, load_board(BOARD), CompileOptions(scratch="arena"))
    assert any(layer.kind == "MOVE" for layer in cached.layers)
    assert cached.tradeoff is None and cached.arena_bytes < 24 * 48 * 24
    # Where scratch is on the stack, and where no cache is, nothing is weighed against the time.
    for board, scratch in ((BOARD, "stack"), ("mps2_an386", "arena")):
        whole = compile_model(model, load_board(board), CompileOptions(scratch=scratch))
        assert not any(layer.kind == "MOVE" for layer in whole.layers)


@pytest.mark.slow
def test_level_ram_loses_more_time_for_a_much_smaller_arena(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 20, 5, 2), 0.05, 0)
    for channels, inputs in ((64, 2), (64, 64), (64, 64), (2, 64)):
        weights = rng.integers(-99, 99, (channels, 1, 1, inputs), dtype=np.int8)
        x = m.conv2d(x, weights, padding="SAME")
    m.output(x)
    made = compile_model(
        m.save(tmp_path / "m.tflite"), load_board(BOARD), CompileOptions(objective=Objective.RAM)
    ).tradeoff
    assert made is not None and made.streamed
    assert 0.2 < made.cycles / made.fastest_cycles - 1 <= 0.32


@pytest.mark.slow
def test_level_ram_takes_high_strips_before_it_loses_much_time(tmp_path: Path) -> None:
    """Strips of a row once took some bytes less than higher ones, and much more time."""
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 24, 5, 2), 0.05, 0)
    x = m.conv2d(x, rng.integers(-99, 99, (48, 3, 3, 2), dtype=np.int8), padding="SAME", scale=0.4)
    for _ in range(3):
        depthwise = rng.integers(-99, 99, (1, 3, 3, 48), dtype=np.int8)
        x = m.depthwise_conv2d(x, depthwise, np.zeros(48, int), padding="SAME", scale=0.4)
        x = m.conv2d(x, rng.integers(-99, 99, (48, 1, 1, 48), dtype=np.int8), scale=0.4)
    m.output(m.average_pool(x, (24, 5), padding="VALID"))
    small = compile_model(
        m.save(tmp_path / "m.tflite"), load_board(BOARD), CompileOptions(objective=Objective.RAM)
    )
    made = small.tradeoff
    assert made is not None and made.streamed
    assert made.cycles <= 1.2 * made.fastest_cycles
    assert made.arena_bytes <= 4_500


@pytest.mark.slow
def test_a_model_too_large_as_a_whole_is_not_refused_before_strips_are_tried(wide: Path) -> None:
    def check(needs: MemoryNeeds) -> None:
        if needs.arena_bytes > 8 * 1024:
            raise CompileError(f"{needs.arena_bytes} bytes do not fit")

    board = load_board("mps2_an386")  # it has no cache, so level time does not look at strips
    with pytest.raises(CompileError, match="do not fit"):
        compile_model(wide, board, watch=Watch(check_needs=check))
    assert (
        compile_model(
            wide, board, CompileOptions(objective=Objective.RAM), Watch(check_needs=check)
        ).arena_bytes
        <= 8 * 1024
    )


@pytest.mark.slow
def test_progress_counts_the_plans_that_are_weighed(wide: Path) -> None:
    for options, most in (({"optimize": "ram"}, 9), ({"ram_budget": 8 * 1024}, 6)):
        told: list[tuple[str, int, int]] = []

        def hear(what: str, done: int, total: int, told: list[tuple[str, int, int]] = told) -> None:
            told.append((what, done, total))

        utvm_deploy.compile(wide, BOARD, progress=hear, **options)
        assert {what for what, _, _ in told} == {"planning the memory of wide: plan"}
        assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
        assert 1 < len(told) <= most and {total for _, _, total in told} == {most}
    # One plan is no news.
    told.clear()
    utvm_deploy.compile(wide, "mps2_an386", progress=hear)
    assert not told


@pytest.mark.tools  # the verb asks the oracle whether it takes the model
def test_the_command_shows_it_on_stderr(
    wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compile", str(wide), "--board", BOARD, "--optimize", "ram", "--json"]
    assert main([*argv, "-o", str(tmp_path / "wide.tar")]) == 0
    printed = capsys.readouterr()
    assert "planning the memory of wide: plan 1/9" in printed.err
    assert json.loads(printed.out)["tradeoff"]["streamed"] == 2
