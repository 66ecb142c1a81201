"""The fastest level of optimization whose code and weights fit a budget of flash."""

from __future__ import annotations

from collections.abc import Callable

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.budgets import check_size
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import Objective
from utvm_deploy.project.model_code import model_code


def within_flash(
    budget: int, level: str, board: Board, compiled_for: Callable[[str], CompiledModel]
) -> CompiledModel:
    """The model at its level, or else at the fastest one that fits; ``budget`` is in bytes.

    Raises CompileError with the least bytes that are possible, and MissingTool without a compiler.
    """
    check_size("the flash budget", budget)
    taken = {}
    order = (Objective.TIME, Objective.BALANCED, Objective.SIZE)
    rest = order[order.index(level) + 1 :] if level in order else (Objective.SIZE,)
    for one in (level, *rest):
        compiled = compiled_for(one)
        code = model_code(compiled, board)
        taken[one] = compiled.weights_bytes + code.code_bytes + code.table_bytes
        if taken[one] <= budget:
            return compiled
    least = min(taken, key=lambda one: taken[one])
    raise CompileError(
        f"the flash budget is {budget:,} bytes, and the least that is possible is "
        f"{taken[least]:,} (--optimize {least}, without the runtime); give a budget of at least "
        "that"
    )
