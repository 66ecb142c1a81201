"""A flash budget chooses the level once: what else is compiled of the model has the same level."""

from __future__ import annotations

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.api import memory_function
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import Objective
from utvm_deploy.project.model_code import model_code

pytestmark = pytest.mark.tools

DIGITS = models.path("digits")
BOARD = load_board("mps2_an500")


def least_flash() -> int:
    """What level size takes: no budget below that is possible, and only this level fits it."""
    compiled = utvm_deploy.compile(DIGITS, BOARD, optimize=Objective.SIZE)
    code = model_code(compiled, BOARD)
    return compiled.weights_bytes + code.code_bytes + code.table_bytes


def test_memory_builds_the_image_at_the_level_that_the_budget_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[tuple[CompiledModel, str]] = []

    def image_memory(compiled: CompiledModel, image: object, place: str) -> None:
        built.append((compiled, place))

    monkeypatch.setattr(memory_function, "build_image", lambda compiled, board: None)
    monkeypatch.setattr(memory_function, "image_memory", image_memory)
    found = memory_function.memory(DIGITS, BOARD, flash_budget=least_flash()).found
    assert found.compiled.optimize == Objective.SIZE and not found.notes
    assert "the flash budget takes level size" in found.compiled.hint
    assert built == [(found.compiled, "dtcm")]
