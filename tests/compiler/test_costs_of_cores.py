"""What kernels cost on cores with a table of costs, and on cores without one."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from tests.tflite_writer import ModelWriter
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.budgets import Budget, OverBudget, Tradeoff
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.planning import kernel_costs
from utvm_deploy.compiler.planning.pass_costs import moving_cycles, strip_cycles
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.targets.arm_m.cores import CORES
from utvm_deploy.targets.table import ESTIMATED, target_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions between large tensors, which strips make smaller."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 24, 24, 4), scale=0.02)
    for filters, channels in ((8, 4), (8, 8), (4, 8)):
        weights = rng.integers(-127, 128, (filters, 3, 3, channels), dtype=np.int8)
        x = m.conv2d(x, weights, rng.integers(-99, 99, filters), scale=0.1)
    m.output(x)
    return m.save(tmp_path_factory.mktemp("costs") / "m.tflite")


def compiled(model: Path, board: str, **budget: int) -> tuple[CompiledModel, Tradeoff]:
    options = CompileOptions(budget=Budget(**budget), scratch="arena")
    found = compile_model(model, load_board(board), options)
    assert found.tradeoff is not None
    return found, found.tradeoff


@pytest.mark.slow
def test_plans_of_a_core_without_a_table(model: Path) -> None:
    """They fit their budgets, fewer bytes cost no fewer instructions, and the unit is said."""
    free, at_best = compiled(model, "host", ram=10**6)
    assert at_best.cycles == at_best.fastest_cycles > 0 and at_best.measured == 0
    assert at_best.unit == "instructions"
    assert "else by an estimate in instructions)" in at_best.text
    with pytest.raises(OverBudget) as caught:
        compiled(model, "host", ram=100)
    least = caught.value.least_bytes
    assert least < free.arena_bytes
    costs = [at_best.cycles]
    for ram in (free.arena_bytes, (least + free.arena_bytes) // 2, least):
        found, made = compiled(model, "host", ram=ram)
        assert found.arena_bytes <= ram
        costs.append(made.cycles)
    assert costs == sorted(costs) and costs[0] < costs[-1]
    within, made = compiled(model, "host", cycles=costs[-1])
    assert made.cycles <= costs[-1] and within.arena_bytes <= free.arena_bytes
    with pytest.raises(OverBudget, match=rf"takes {costs[0]:,} instructions by"):
        compiled(model, "host", cycles=1000)


def test_a_core_with_a_table_counts_cycles(model: Path) -> None:
    _, made = compiled(model, "mps2_an386", ram=10**6)
    assert made.unit == "cycles" and "else by an estimate in cycles)" in made.text


def test_every_arm_core_has_a_table_and_no_other_core_has_the_arm_ones() -> None:
    tables = target_of("cortex-m7").costs
    assert tables.keys() == {core.name for core in CORES}
    assert {table.unit for table in tables.values()} == {"cycles"}
    for core in ("host", "i386"):
        assert not target_of(core).costs
    assert ESTIMATED.unit == "instructions"


def test_a_strip_costs_more_with_more_weights_and_more_bytes(model: Path) -> None:
    graph = load_model(model)
    small, large = (strip_cycles(graph, graph.operators[i], ESTIMATED) for i in (0, 1))
    assert ESTIMATED.per_call < small < large
    assert moving_cycles(10, ESTIMATED) < moving_cycles(20, ESTIMATED)


def test_the_planner_knows_no_kernel_by_its_class() -> None:
    tree = ast.parse(Path(kernel_costs.__file__).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in modules if "kernels.native" in name or "portable" in name]
