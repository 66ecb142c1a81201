"""Forms of kernels that take more flash are taken where they are worth it, and it has room."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.facts import Region
from utvm_deploy.compiler.budgets import Budget, OverBudget
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import FLASH_RATE, STACK, CompileOptions, Objective
from utvm_deploy.compiler.planning.flash_rate import FlashChoice, room_for_tables
from utvm_deploy.compiler.stages.pipeline import compile_model

BOARD = load_board("mps2_an500")


# Rows of four outputs are too short for tiles of 4 x 4, which have no tables.
def write_convolutions(
    path: Path,
    size: tuple[int, int] = (36, 4),
    channels: int = 16,
    wanted: tuple[int, ...] = (16, 32),
) -> None:
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, *size, channels), 0.05, 3)
    for outputs in wanted:
        weights = rng.integers(-128, 128, (outputs, 3, 3, channels), dtype=np.int8)
        bias = rng.integers(-999, 999, outputs, dtype=np.int32)
        m.output(m.conv2d(x, weights, bias, weight_scale=0.01, padding="SAME", scale=1.5))
    m.save(path)


def with_flash(size: int) -> Board:
    def sized(region: Region) -> Region:
        return replace(region, size=size) if region == BOARD.main_flash else region

    return replace(BOARD, memory=tuple(map(sized, BOARD.memory)))


TABLES, INT8, NONE = "tables", "int8", "none"


def methods(compiled: CompiledModel) -> list[str]:
    """Of each layer, in which form it has Winograd's weights."""
    return [
        NONE if "Winograd" not in one.why else INT8 if "weights of int8" in one.why else TABLES
        for one in compiled.layers
    ]


@pytest.mark.parametrize(
    ("flash", "expected"), [(1024 * 1024, [TABLES] * 2), (30 * 1024, [INT8] * 2)]
)
def test_tables_without_room_are_not_taken(flash: int, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_convolutions(path)
    board = with_flash(flash)
    compiled = compile_model(path, board, CompileOptions(scratch=STACK, flash_rate=0))
    assert methods(compiled) == expected
    if expected[0] == INT8:
        assert compiled.weights_bytes <= room_for_tables(board)
        # No plan of the list needs more than there is.
        assert all(one.flash_bytes <= flash for one in compiled.flash_plans)
        assert "more than the flash has room for" in compiled.layers[1].why


def test_each_byte_of_flash_must_save_cycles(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_convolutions(path)
    found = [
        compile_model(path, BOARD, CompileOptions(scratch=STACK, flash_rate=rate))
        for rate in (0, None, 1e6)
    ]
    fastest, default, smallest = found
    assert methods(fastest) == [TABLES] * 2 and methods(default) == [INT8] * 2
    assert fastest.weights_bytes > 2 * default.weights_bytes
    assert smallest.weights_bytes <= default.weights_bytes
    for one in found:
        plans = one.flash_plans
        assert [p.is_chosen for p in plans].count(True) == 1
        assert [p.rate for p in plans] == sorted(p.rate for p in plans)
        # Each plan is on the frontier: fewer bytes cost cycles.
        for before, after in itertools.pairwise(plans):
            assert after.flash_bytes < before.flash_bytes and after.cycles > before.cycles
            assert before.most_rate < after.rate <= after.most_rate
    chosen = [next(p for p in one.flash_plans if p.is_chosen) for one in found]
    for plan, rate in zip(chosen, (0, FLASH_RATE, 1e6), strict=True):
        assert plan.rate <= rate <= plan.most_rate
        assert plan.rates in (f"{plan.rate:g}", f"{plan.rate:g} to {plan.most_rate:g}")
    assert chosen[1].cycles - chosen[0].cycles <= FLASH_RATE * (
        chosen[0].flash_bytes - chosen[1].flash_bytes
    )


def test_a_kernel_with_less_scratch_has_no_larger_tables(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_convolutions(path, (8, 8), 144, (160,))
    compiled = compile_model(path, BOARD, CompileOptions(scratch=STACK))
    assert "more than the stack has" in compiled.layers[0].why
    assert methods(compiled) == [INT8] and compiled.weights_bytes < 1.1 * 9 * 144 * 160


def test_a_kernel_with_less_scratch_has_larger_tables_without_a_cache(tmp_path: Path) -> None:
    """There they save the rate: they are read sooner than weights of int8 are transformed."""
    rng, m = np.random.default_rng(4), ModelWriter()
    x = m.input((1, 32, 32, 20), 0.05, 3)
    for stride, inputs in ((2, 20), (1, 32)):
        weights = rng.integers(-128, 128, (32, 3, 3, inputs), dtype=np.int8)
        bias = rng.integers(-999, 999, 32, dtype=np.int32)
        x = m.conv2d(x, weights, bias, weight_scale=0.01, stride=stride, scale=0.05, zero_point=3)
    m.output(x)
    m.save(tmp_path / "model.tflite")
    compiled = compile_model(tmp_path / "model.tflite", load_board("mps2_an386"))
    assert "would make the arena larger" in compiled.layers[1].why
    assert methods(compiled)[1] == TABLES


@pytest.mark.parametrize("seed", [1583, 2689])
def test_plans_that_seem_better_by_turns_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats are rounded, so each of two equal plans can seem better than the other."""
    rng = random.Random(seed)
    rate = rng.choice([0.1, 0.3, 0.7, 1.1, 3.3, 0.5, 4.0])
    layers = rng.randint(1, 5)
    sizes = [rng.choice([3, 7, 10, 100, 1000, 333]) for _ in range(6)]
    forms: dict[int, tuple[Any, ...]] = {}
    parts: dict[tuple[int, int], dict[int, int]] = {}
    for n in range(layers):
        for form in range(rng.randint(2, 5)):
            some = rng.sample(range(6), rng.randint(1, 4))
            parts[n, form] = {part: sizes[part] for part in some}
            call = SimpleNamespace(candidate=None, kernel=None)
            # With their flash, all forms of a layer cost the same.
            cycles = 1000.0 - rate * sum(parts[n, form].values())
            one = SimpleNamespace(cycles=cycles, step=SimpleNamespace(call=call))
            forms[n] = (*forms.get(n, ()), one)
    choice = FlashChoice((), lambda _: (), "", rate, math.inf)
    vars(choice)["_forms"] = forms
    gain, tried = choice._gain, itertools.count()

    def counted(*arguments: Any) -> Any:
        assert next(tried) < 1000
        return gain(*arguments)

    monkeypatch.setattr(choice, "_parts_of", lambda n, form: parts[n, form])
    monkeypatch.setattr(choice, "_gain", counted)
    choice._chosen(rate)


def test_limits_have_no_list_and_cycles_have_the_default_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_convolutions(path)
    default = compile_model(path, BOARD)
    (chosen,) = [one for one in default.flash_plans if one.is_chosen]
    assert default.pools
    again = compile_model(path, BOARD, CompileOptions(budget=Budget(cycles=chosen.cycles)))
    assert [one.why for one in again.layers] == [one.why for one in default.layers]
    assert again.pools == default.pools and not again.flash_plans
    with pytest.raises(OverBudget) as told:
        compile_model(path, BOARD, CompileOptions(budget=Budget(cycles=1)))
    assert told.value.fastest[1] <= chosen.cycles
    assert f"the fastest plan takes {told.value.fastest[1]:,} cycles" in str(told.value)
    for level in ("balanced", "size", "ram"):
        assert not compile_model(path, BOARD, CompileOptions(Objective(level))).flash_plans


@pytest.mark.parametrize("rate", [-1, float("inf"), float("nan"), True, "4"])
def test_a_rate_is_a_number_of_cycles(rate: object) -> None:
    with pytest.raises(CompileError, match=r"the flash rate is .*; give a number of cycles"):
        CompileOptions(flash_rate=rate)  # type: ignore[arg-type]


def test_levels_for_few_bytes_take_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    write_convolutions(path)
    for level, expected in (("balanced", INT8), ("size", NONE)):
        options = CompileOptions(objective=Objective(level), scratch=STACK)
        assert methods(compile_model(path, BOARD, options)) == [expected] * 2
