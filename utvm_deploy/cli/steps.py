"""The steps that several verbs have in common: compile a model, put it on a board."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import utvm_deploy
import utvm_deploy.compiler.stages.pipeline  # here, before Ctrl-C becomes an exception
from utvm_deploy.api.steps import CheckFits, compile_fitting
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.progress import Progress
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import connection
from utvm_deploy.cli.compile_options import compile_options, custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.device.probe import choose_link, needs_debugger, needs_line, start
from utvm_deploy.frontend.formats import check_readable
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.project import build_image, check_fits


def device_of(args: argparse.Namespace, board: Board) -> Device:
    """The device that the command line names; it is not open yet.

    Raises ModelError if the only model is not there: a board may need more of the user.
    """
    models = getattr(args, "models", None) or [args.model]
    if len(models) == 1:
        check_readable(models[0])
    return utvm_deploy.connect(board, **connection(args))


def check_board(args: argparse.Namespace, board: Board) -> None:
    """Refuse a board that cannot be reached before anything is compiled or built for it."""
    device_of(args, board).check_ready()


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
    return compile_fitting(args.model, board, progress, fits=fits, dump=dump, **options)


def dry_run_step(args: argparse.Namespace, board: Board, compiled: CompiledModel) -> int:
    """Go through building and starting while ``process`` prints the commands and runs none."""
    where = connection(args)
    if where["server"]:
        raise UsageError(
            f"--dry-run shows commands of this computer, and none of {where['server']}; "
            f"give --board {board.name}"
        )
    start_dry(compiled, board, **{key: where[key] for key in ("port", "probe", "serial", "link")})
    return 0


def start_dry(
    compiled: CompiledModel,
    board: Board,
    *,
    port: str | None,
    probe: str | None,
    serial: str | None,
    link: str | None,
) -> None:
    """Build and start a model while ``process`` prints the commands and runs none."""
    kind = choose_link(board, link)
    with start(
        board,
        build_image(compiled, board),
        port=port,
        probe=probe,
        serial=serial,
        has_line=needs_line(kind),
        # An emulator's debugger comes over a descriptor that a dry run has none of.
        has_debug_stream=needs_debugger(kind) and not board.runs_here,
    ):
        pass


def dry_run(args: argparse.Namespace, board: Board, out: Output) -> int:
    """What ``--dry-run`` does of a verb that runs ``args.model`` on a board."""
    check_board(args, board)
    load_model(args.model, custom_of(args, board))
    with out.progress() as progress:
        compiled = compile_step(args, board, progress)
        for layer in compiled.layers:
            if layer.npu_cycles is not None:
                out.line(f"layer {layer.index}, {layer.kind}, by {layer.engine}: {layer.why}")
        return dry_run_step(args, board, compiled)
