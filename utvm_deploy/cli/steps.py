"""The steps that several verbs have in common: compile a model, put it on a board."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import utvm_deploy
import utvm_deploy.compiler.pipeline  # here, before Ctrl-C becomes an exception
from utvm_deploy.base.errors import CompileError, UsageError
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import connection
from utvm_deploy.cli.compile_options import compile_options
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.options import BALANCED, SIZE, TIME
from utvm_deploy.device import CYCLES, DeviceModel
from utvm_deploy.probe import choose_link, needs_debugger, needs_line, start
from utvm_deploy.project import build_image, check_fits
from utvm_deploy.project.model_code import model_code


def check_board(args: argparse.Namespace, board: Board) -> None:
    """Refuse a board that cannot be reached before anything is compiled or built for it."""
    utvm_deploy.connect(board, **connection(args)).check_ready()


#: Raises CompileError for a model that does not fit a board.
CheckFits = Callable[[CompiledModel | MemoryNeeds, Board], None]


def compile_step(
    args: argparse.Namespace,
    board: Board,
    progress: Progress,
    *,
    fits: CheckFits = check_fits,
    dump: Callable[[str, str], None] | None = None,
) -> CompiledModel:
    """Compile ``args.model``; refuse a model that does not fit the board as early as possible.

    ``fits`` is for a whole image with the runtime, or for the model alone.
    """
    options = compile_options(args, board)
    progress(f"compiling {args.model.name} for {board.name}", 0, 1)

    def compiled_for(level: str) -> CompiledModel:
        return utvm_deploy.compile(
            args.model,
            board,
            name=args.name,
            dump=dump,
            check_needs=lambda needs: fits(needs, board),
            **options | {"optimize": level},
        )

    if args.flash_budget is None or args.dry_run:
        compiled = compiled_for(args.optimize)
    else:
        compiled = _within_flash(args.flash_budget, args.optimize, board, compiled_for)
    fits(compiled, board)
    return compiled


def _within_flash(
    budget: int, level: str, board: Board, compiled_for: Callable[[str], CompiledModel]
) -> CompiledModel:
    """The model at its level, or else at the fastest one whose code and weights fit the budget."""
    taken = {}
    order = (TIME, BALANCED, SIZE)
    rest = order[order.index(level) + 1 :] if level in order else (SIZE,)
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


def dry_run_step(args: argparse.Namespace, board: Board, compiled: CompiledModel) -> int:
    """Go through building and starting while ``process`` prints the commands and runs none."""
    where = connection(args)
    if where["server"]:
        raise UsageError(
            f"--dry-run shows commands of this computer, and none of {where['server']}; "
            f"give --board {board.name}"
        )
    kind = choose_link(board, where["link"])
    with start(
        board,
        build_image(compiled, board),
        port=where["port"],
        probe=where["probe"],
        serial=where["serial"],
        has_line=needs_line(kind),
        # An emulator's debugger comes over a descriptor that a dry run has none of.
        has_debug_stream=needs_debugger(kind) and not board.runs_here,
    ):
        return 0


@contextmanager
def load_step(
    args: argparse.Namespace,
    board: Board,
    compiled: CompiledModel,
    progress: Progress,
    *,
    timing: str = CYCLES,
) -> Iterator[DeviceModel]:
    """Build the image, start it and give the model on the device."""
    progress(f"building the image and starting {board.name}", 0, 1)
    with utvm_deploy.connect(board, timing=timing, **connection(args)) as device:
        yield device.load(compiled)
