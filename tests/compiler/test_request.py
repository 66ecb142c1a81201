"""What a request for a compilation decides before the model is read."""

from __future__ import annotations

from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.budgets import Budget, Goal
from utvm_deploy.compiler.options import ARENA, STACK, CompileOptions, Objective
from utvm_deploy.compiler.stages.request import Request
from utvm_deploy.records import Records

CACHED, PLAIN = load_board("mps2_an500"), load_board("mps2_an386")
LIBRARY = CmsisNn((), "", "", "")


@pytest.mark.parametrize(
    ("options", "goal"),
    [
        (CompileOptions(), Goal.FASTEST),  # scratch has a pool
        (CompileOptions(scratch=ARENA), Goal.LITTLE_SLOWER),
        (CompileOptions(scratch=ARENA, records=Records()), Goal.FASTEST),
        (CompileOptions(scratch=ARENA, is_trial=True), Goal.FASTEST),
        (CompileOptions(Objective.SIZE, scratch=ARENA), Goal.FASTEST),
        (CompileOptions(Objective.RAM), Goal.SMALLEST),
        (CompileOptions(Objective.RAM, Budget(ram=9999)), Goal.WITHIN_BUDGET),
        (CompileOptions(input_rows=True), Goal.WITHIN_BUDGET),
        (CompileOptions(Objective.RAM, input_rows=True), Goal.SMALLEST),
    ],
)
def test_the_goal_of_a_search(options: CompileOptions, goal: Goal) -> None:
    assert Request("model.tflite", CACHED, options).goal is goal


def test_no_cache_no_little_loss() -> None:
    assert Request("model.tflite", PLAIN, CompileOptions(scratch=ARENA)).goal is Goal.FASTEST


def test_the_name_of_an_objective_is_the_objective() -> None:
    options = CompileOptions("ram")  # type: ignore[arg-type]
    assert options.objective is Objective.RAM
    assert Request("model.tflite", CACHED, options).goal is Goal.SMALLEST
    with pytest.raises(CompileError, match="no level 'speed'"):
        CompileOptions("speed")  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernels", "is_taken"), [("best", 0), ("generic", 0), ("cmsis-nn", 1)])
def test_kernels_say_whether_a_library_is_used(kernels: str, is_taken: int) -> None:
    request = Request("model.tflite", PLAIN, CompileOptions(kernels=kernels, cmsis_nn=LIBRARY))
    assert len(request.backends) == is_taken


def test_what_counts_scratch_in_the_arena_refuses_the_stack_before_the_model_is_read() -> None:
    with pytest.raises(CompileError, match="leave --scratch stack out"):
        Request("no such file", CACHED, CompileOptions(Objective.RAM, scratch=STACK))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ram_budget": "64K"}, "the RAM budget is '64K'; give an integer above 0"),
        ({"cycle_budget": 1.5}, "the cycle budget is 1.5; give an integer above 0"),
        ({"flash_budget": "abc"}, "the flash budget is 'abc'; give an integer above 0"),
        ({"pools": {"dtcm": "4K"}}, "the pool dtcm is '4K'; give an integer above 0"),
        ({"pools": "dtcm=4K"}, "the pools are 'dtcm=4K'; map each region's name to bytes"),
    ],
)
def test_sizes_of_python_are_numbers(options: dict[str, Any], words: str) -> None:
    digits = data_dir("models") / "digits.tflite"
    with pytest.raises(CompileError, match=words):
        utvm_deploy.compile(digits, CACHED, **options)
