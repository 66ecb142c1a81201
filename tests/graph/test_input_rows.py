"""Random chains whose input is pushed: the same bytes, however many rows come at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel
from pushed_rows import PushedModel, facts_of
from test_strips import random_chain

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.graph.strips.chains import chain_ends
from utvm_deploy.graph.strips.input_rows import with_input_rows

SOAK = tuple(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60))


def test_the_first_operator_stands_for_the_rows(tmp_path: Path) -> None:
    graph = random_chain(1, tmp_path)
    made = with_input_rows(graph)
    assert made.operators[0].kind == "INPUT_ROWS"
    (number,) = made.inputs
    assert made.tensors[number].is_outside and not made.tensors[number].has_place
    assert list(chain_ends(made, 0))
    assert len(made.operators) == len(graph.operators) + 1


@pytest.mark.tools
@pytest.mark.parametrize("seed", [0, 1, 2, *SOAK])
def test_pushed_rows_make_the_bytes_of_the_whole_input(seed: int, tmp_path: Path) -> None:
    graph = random_chain(seed, tmp_path)
    board = load_board("host")
    rng = np.random.default_rng(seed)
    (number,) = graph.inputs
    whole = HostModel(compile_model(replace(graph, name="whole"), board), tmp_path)
    compiled = compile_model(
        graph, board, CompileOptions(name="pushed", objective=Objective.RAM, input_rows=True)
    )
    pushed = PushedModel(compiled, tmp_path)
    pushed.prepare()
    for most in (1, 3, facts_of(pushed).count, int(rng.integers(2, 9))):
        image = rng.integers(-128, 128, graph.tensors[number].shape).astype(np.int8)
        for got, expected in zip(pushed.push_image(image, most), whole.run([image]), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.tools
def test_a_wrong_push_writes_nothing(tmp_path: Path) -> None:
    compiled = compile_model(
        random_chain(2, tmp_path),
        load_board("host"),
        CompileOptions(name="pushed", objective=Objective.RAM, input_rows=True),
    )
    model = PushedModel(compiled, tmp_path)
    model.prepare()
    facts = facts_of(model)
    rows = np.zeros((facts.count + 1, facts.row_bytes), np.uint8)
    for pushed in (0, 3):
        if pushed:
            assert model.push(rows, pushed) == facts.count - pushed
        before = model.arena.copy()
        too_many = facts.count - pushed + 1
        assert model.push(rows, too_many) == -1
        assert model.push(rows, 2**32 - 1) == -1
        assert model.push(rows, 0) == -1
        assert model.push(None, 1) == -1
        assert (model.arena == before).all()
    assert model.push(rows, facts.count - 3) == 0
    assert model.push(rows, 1) == facts.count - 1  # the first row of the next input
