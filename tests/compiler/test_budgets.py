"""Budgets and level ram: plans within limits of bytes or cycles, and what they cost."""

from __future__ import annotations

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
from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.compiler.budgets import Budget
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.planning.kernel_costs import KernelCosts, Option
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.targets.table import ESTIMATED

BOARD = "mps2_an500"
CIFAR = data_dir("models") / "cifar10_cnn.tflite"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions whose fastest kernels want scratch while much is live."""
    rng = np.random.default_rng(17)
    m = ModelWriter()
    x = m.input((1, 16, 16, 16), scale=0.02)
    weights = rng.integers(-127, 128, (16, 3, 3, 16), dtype=np.int8)
    a = m.conv2d(x, weights, rng.integers(-99, 99, 16), scale=0.1)
    m.output(m.conv2d(a, weights, rng.integers(-99, 99, 16), scale=0.5))
    return m.save(tmp_path_factory.mktemp("budgets") / "m.tflite")


def compiled(model: Path, budget: Budget, level: str = "time") -> CompiledModel:
    """With scratch in the arena, so that it counts there."""
    return compile_model(
        model,
        load_board(BOARD),
        CompileOptions(budget=budget, objective=Objective(level), scratch="arena"),
    )


def test_a_smaller_arena_takes_more_cycles_and_every_plan_is_within_its_budget(
    model: Path,
) -> None:
    free = compiled(model, Budget(ram=10**6))
    assert free.tradeoff is not None
    assert free.tradeoff.cycles == free.tradeoff.fastest_cycles
    least, most = free.tradeoff.least_bytes, free.arena_bytes
    assert least < most
    cycles = []
    for ram in np.linspace(least, most, 5, dtype=int):
        found = compiled(model, Budget(ram=int(ram)))
        assert found.arena_bytes <= ram
        assert found.tradeoff is not None
        assert found.tradeoff.arena_bytes == found.arena_bytes
        cycles.append(found.tradeoff.cycles)
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > cycles[-1]


def test_a_budget_that_cannot_be_met_names_the_least(model: Path) -> None:
    with pytest.raises(CompileError, match=r"RAM budget is 100 bytes.*least possible") as caught:
        compiled(model, Budget(ram=100))
    words = str(caught.value).replace(";", "").split()
    least = int(words[words.index("has") + 1].replace(",", ""))
    assert compiled(model, Budget(ram=least)).arena_bytes == least
    with pytest.raises(CompileError, match="cycle budget is 10, and the fastest plan takes"):
        compiled(model, Budget(cycles=10))


def test_a_cycle_budget_gives_the_smallest_arena_within_it(model: Path) -> None:
    free = compiled(model, Budget(ram=10**6)).tradeoff
    assert free is not None
    arenas = []
    for factor in (1.0, 1.1, 2.0):
        most = int(free.cycles * factor) + 1
        found = compiled(model, Budget(cycles=most))
        assert found.tradeoff is not None and found.tradeoff.cycles <= most
        arenas.append(found.arena_bytes)
    assert arenas == sorted(arenas, reverse=True)
    assert arenas[-1] < arenas[0]


@pytest.mark.slow
def test_level_ram_is_at_most_a_fifth_slower_by_the_records() -> None:
    fast = utvm_deploy.compile(CIFAR, BOARD)
    small = utvm_deploy.compile(CIFAR, BOARD, optimize="ram")
    assert small.optimize == "ram" and small.optimization_flag == "-O3"
    assert small.arena_bytes <= fast.arena_bytes
    assert small.tradeoff is not None and fast.tradeoff is None
    assert small.tradeoff.cycles <= 1.2 * small.tradeoff.fastest_cycles
    # It computes layers in strips, and says so.
    assert small.tradeoff.streamed >= 2 and small.arena_bytes <= 20_000
    assert f"{small.tradeoff.streamed} layers are computed in strips of rows" in small.tradeoff.text
    assert any(layer.kind == "MOVE" for layer in small.layers)
    assert small.tradeoff.least_bytes < 13_000
    least = utvm_deploy.compile(CIFAR, BOARD, ram_budget=small.tradeoff.least_bytes)
    assert least.arena_bytes < small.arena_bytes
    told = [layer.why for layer in least.layers if "its scratch is over the budget" in layer.why]
    assert told and "cycles for" in told[0]


@pytest.mark.slow
def test_behind_a_cache_level_time_takes_a_small_arena() -> None:
    """Scratch that the cache cannot hold is no faster than a kernel with less."""
    assert utvm_deploy.compile(CIFAR, BOARD, scratch="arena").arena_bytes <= 34_000


@pytest.mark.slow
def test_a_budget_that_nothing_native_meets_takes_plain_c() -> None:
    """The dense layer's assembly has the widened input in scratch."""
    model = data_dir("models") / "digits.tflite"
    free = utvm_deploy.compile(model, BOARD, ram_budget=10**6, scratch="arena")
    assert free.tradeoff is not None
    found = utvm_deploy.compile(model, BOARD, ram_budget=free.tradeoff.least_bytes, scratch="arena")
    assert found.arena_bytes <= free.tradeoff.least_bytes


def options_of(model: Path, board: str, monkeypatch: pytest.MonkeyPatch) -> list[list[Option]]:
    seen: list[list[Option]] = []
    options = KernelCosts.options

    def watched(self: KernelCosts, step: Step) -> tuple[Option, ...]:
        found = options(self, step)
        seen.append(list(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(KernelCosts, "options", watched)
        compile_model(
            model, load_board(board), CompileOptions(budget=Budget(ram=10**6), scratch="arena")
        )
    return seen


def test_of_one_kind_of_kernel_less_scratch_is_estimated_to_be_slower(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a core without a data cache."""
    compared = 0
    for found in options_of(model, "mps2_an386", monkeypatch):
        for kind in {type(one.step.call.kernel) for one in found}:
            same = [o for o in found if type(o.step.call.kernel) is kind and not o.is_measured]
            cycles = [o.cycles for o in sorted(same, key=lambda one: one.scratch_bytes)]
            assert cycles == sorted(cycles, reverse=True)
            compared += len(cycles) > 1
    assert compared


def test_scratch_that_a_cache_cannot_hold_costs_more(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain, *_), (cached, *_) = (
        options_of(model, board, monkeypatch) for board in ("mps2_an386", BOARD)
    )
    assert plain and cached
    costs = KernelCosts.__new__(KernelCosts)
    costs._cache_bytes = 4096
    costs.table = ESTIMATED
    costs._graph = load_model(model)
    step = cached[0].step
    misses = [costs._misses_cycles(step, size) for size in (0, 2048, 3072, 5120, 9000)]
    assert misses[:2] == [0, 0]
    assert 0 < misses[2] < misses[3] == misses[4]


@pytest.mark.parametrize("budget", [Budget(ram=10**5), Budget(cycles=10**8)])
def test_a_budget_does_not_go_with_scratch_on_the_stack(model: Path, budget: Budget) -> None:
    with pytest.raises(CompileError, match="leave --scratch stack out"):
        compile_model(model, load_board(BOARD), CompileOptions(budget=budget, scratch="stack"))


@pytest.mark.parametrize("value", [0, -5])
def test_python_refuses_budgets_of_nothing(value: int) -> None:
    with pytest.raises(CompileError, match="give an integer above 0"):
        Budget(ram=value)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--ram-budget", "0", "a budget of 0 bytes holds no model"),
        ("--ram-budget", "-5", "is not a size"),
        ("--ram-budget", "3V", "is not a size"),
        ("--flash-budget", "0K", "a budget of 0 bytes holds no model"),
        ("--cycle-budget", "0", "is not a number of cycles"),
        ("--cycle-budget", "3 MHz", "is not a number of cycles"),
    ],
)
def test_bad_budgets_are_usage_errors(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compile", str(CIFAR), "--board", BOARD, "-o", "m.tar", option, value]
    assert main(argv) == 2
    assert told in capsys.readouterr().err


def test_a_ram_budget_counts_fast_scratch(wide_model: Path) -> None:
    board = load_board(BOARD)
    free = compile_model(wide_model, board)
    (pool,) = free.pools
    room = free.arena_bytes + pool.size_bytes
    within = compile_model(wide_model, board, CompileOptions(budget=Budget(ram=room + 16)))
    assert within.sources == free.sources and "faster" not in within.hint
    less = compile_model(wide_model, board, CompileOptions(budget=Budget(ram=room - 64)))
    assert less.arena_bytes + less.pool_bytes <= room - 64
    assert 0 < less.pool_bytes < pool.size_bytes
    literal = compile_model(
        wide_model, board, CompileOptions(scratch="arena", budget=Budget(ram=room))
    )
    assert not literal.pools and literal.arena_bytes <= room
    assert re.search(r"^faster: scratch in dtcm, [\d,]+ bytes of it", literal.hint)
    assert within.tradeoff is not None and less.tradeoff is not None


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution whose fast kernel has more scratch than a cache of 4 KB holds."""
    rng = np.random.default_rng(5)
    m = ModelWriter()
    x = m.input((1, 16, 16, 32), scale=0.05)
    weights = rng.integers(-99, 99, (32, 3, 3, 32), dtype=np.int8)
    m.output(m.conv2d(x, weights, rng.integers(-99, 99, 32), padding="SAME", scale=0.5))
    return m.save(tmp_path_factory.mktemp("budgets") / "wide.tflite")
