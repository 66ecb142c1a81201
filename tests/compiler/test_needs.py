"""What is said of a model's memory before its kernels are made is never more than it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_models.generator import generate
from random_models.recipe import write
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch

BOARDS = ("host", "mps2_an385", "mps2_an500", "mps3_an547")


def compiled_with_needs(
    path: Path, board_name: str, level: str
) -> tuple[CompiledModel, list[MemoryNeeds]]:
    told: list[MemoryNeeds] = []
    board = load_board(board_name)
    # With scratch in the arena, level time may compute strips: those are not refused early.
    compiled = compile_model(
        path,
        board,
        CompileOptions(objective=Objective(level), scratch="stack"),
        Watch(check_needs=told.append),
    )
    return compiled, told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("board_name", BOARDS)
@pytest.mark.parametrize("seed", range(8))
def test_the_least_needs_are_no_more_than_the_needs(
    seed: int, board_name: str, tmp_path: Path
) -> None:
    path = write(generate(seed)).save(tmp_path / "model.tflite")
    compiled, (least, planned) = compiled_with_needs(path, board_name, ("time", "size")[seed % 2])
    assert least.is_least and not planned.is_least
    assert 0 < least.arena_bytes <= planned.arena_bytes == compiled.arena_bytes
    assert least.weights_bytes <= planned.weights_bytes <= compiled.weights_bytes


def weighted(m: ModelWriter, x: int, weights: np.ndarray) -> int:
    return m.conv2d(x, weights, np.zeros(weights.shape[0], np.int32), scale=0.3)


@pytest.mark.parametrize("board_name", BOARDS)
def test_weights_are_known_before_kernels_are_made(board_name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(1, 128, (64, 1, 1, 64), dtype=np.int8)
    m = ModelWriter()
    x = m.input((1, 8, 8, 64), scale=0.1)
    # Equal weights are stored once.
    x = weighted(m, weighted(m, x, weights), weights)
    m.output(weighted(m, x, weights[::-1, ..., ::-1] + np.int8(-1)))
    path = m.save(tmp_path / "model.tflite")
    compiled, (least, _) = compiled_with_needs(path, board_name, "time")
    assert 8000 <= least.weights_bytes <= 8192 <= compiled.weights_bytes
    assert least.arena_bytes == 8 * 8 * 64


def test_taps_that_never_meet_the_image_do_not_count(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 1, 2, 8), scale=0.1)
    m.output(weighted(m, x, np.ones((4, 5, 3, 8), np.int8)))
    path = m.save(tmp_path / "model.tflite")
    for board in BOARDS:
        compiled, (least, _) = compiled_with_needs(path, board, "time")
        assert least.weights_bytes == 4 * 1 * 3 * 8 <= compiled.weights_bytes


def test_a_refusal_comes_before_kernels_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(needs: MemoryNeeds) -> None:
        raise CompileError(f"{needs.arena_bytes} bytes are too many")

    def schedule(*_args: object, **_named: object) -> None:
        raise AssertionError("a kernel is made")

    monkeypatch.setattr("utvm_deploy.compiler.lowering.scheduling.lower_kernel", schedule)
    m = ModelWriter()
    m.output(m.relu(m.input((1, 500))))
    path = m.save(tmp_path / "model.tflite")
    with pytest.raises(CompileError, match="500 bytes are too many"):
        compile_model(path, load_board("mps2_an385"), watch=Watch(check_needs=refuse))
