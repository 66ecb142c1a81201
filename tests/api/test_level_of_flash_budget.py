"""A flash budget chooses the level once: what else is compiled of the model has the same level."""

from __future__ import annotations

from typing import Any

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.api import memory_function
from utvm_deploy.api.profile_function import bundle_arena_bytes
from utvm_deploy.base.progress import no_progress
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.options import ARENA, AUTO, SIZE, STACK, TIME
from utvm_deploy.project.model_code import model_code

pytestmark = pytest.mark.tools

DIGITS = models.path("digits")
BOARD = load_board("mps2_an500")  # its images have scratch on the stack, and bundles in the arena


def compiled_for(level: str, place: str) -> CompiledModel:
    return utvm_deploy.compile(DIGITS, BOARD, optimize=level, scratch=place)


def least_flash(place: str) -> int:
    """What level size takes: no budget below that is possible, and only this level fits it."""
    compiled = compiled_for(SIZE, place)
    code = model_code(compiled, BOARD)
    return compiled.weights_bytes + code.code_bytes + code.table_bytes


def test_profile_tells_the_arena_of_a_bundle_at_the_level_that_the_budget_chose() -> None:
    options: dict[str, Any] = {"scratch": AUTO, "flash_budget": least_flash(AUTO)}
    chosen = utvm_deploy.compile(DIGITS, BOARD, **options)
    assert chosen.optimize == SIZE and chosen.stack_bytes
    wanted = compiled_for(SIZE, ARENA).arena_bytes
    assert wanted != compiled_for(TIME, ARENA).arena_bytes
    assert bundle_arena_bytes(DIGITS, BOARD, chosen, options) == wanted


def test_memory_builds_the_image_at_the_level_that_the_budget_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[tuple[CompiledModel, str]] = []

    def image_memory(compiled: CompiledModel, image: object, place: str) -> None:
        built.append((compiled, place))

    monkeypatch.setattr(memory_function, "build_image", lambda compiled, board: None)
    monkeypatch.setattr(memory_function, "image_memory", image_memory)
    found = memory_function.measured(
        DIGITS, BOARD, no_progress, image=True, scratch=ARENA, flash_budget=least_flash(ARENA)
    )
    assert found.compiled.optimize == SIZE and not found.notes
    ((compiled, place),) = built
    assert place == STACK and compiled.optimize == SIZE
    assert compiled.stack_bytes == compiled_for(SIZE, STACK).stack_bytes
    assert compiled.stack_bytes != compiled_for(TIME, STACK).stack_bytes
