"""Kernels with large tables are taken only where the flash has room for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.facts import Region
from utvm_deploy.compiler.options import STACK, CompileOptions, Objective
from utvm_deploy.compiler.planning.flash_limit import room_for_tables
from utvm_deploy.compiler.stages.pipeline import compile_model

BOARD = load_board("mps2_an500")


def write_two_convolutions(path: Path) -> None:
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 12, 12, 16), 0.05, 3)
    for outputs in (16, 32):
        weights = rng.integers(-128, 128, (outputs, 3, 3, 16), dtype=np.int8)
        bias = rng.integers(-999, 999, outputs, dtype=np.int32)
        m.output(m.conv2d(x, weights, bias, weight_scale=0.01, padding="SAME", scale=1.5))
    m.save(path)


def with_flash(size: int) -> Board:
    def sized(region: Region) -> Region:
        return replace(region, size=size) if region == BOARD.main_flash else region

    return replace(BOARD, memory=tuple(map(sized, BOARD.memory)))


@pytest.mark.parametrize(
    ("flash", "winograd"), [(1024 * 1024, [True, True]), (30 * 1024, [True, False]), (4096, [])]
)
def test_the_largest_tables_go_first(flash: int, winograd: list[bool], tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_two_convolutions(path)
    compiled = compile_model(path, with_flash(flash), CompileOptions(scratch=STACK))
    found = ["Winograd" in layer.why for layer in compiled.layers]
    assert found == (winograd or [False, False])
    if flash == 30 * 1024:
        assert compiled.weights_bytes <= room_for_tables(with_flash(flash))
        assert "more than the flash has room for" in compiled.layers[1].why


def test_levels_for_few_bytes_take_no_winograd(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_two_convolutions(path)
    for level in ("balanced", "size"):
        compiled = compile_model(
            path, BOARD, CompileOptions(objective=Objective(level), scratch=STACK)
        )
        assert not any("Winograd" in layer.why for layer in compiled.layers)
