"""utvm bench: our kernels against another engine's, layer by layer."""

from __future__ import annotations

import argparse
from typing import Any

import utvm_deploy
from utvm_deploy.api.bench_function import SCHEMA, BenchResult, check_names
from utvm_deploy.api.bench_models import Comparing
from utvm_deploy.backends.cmsis_nn import MURISCV_NN, CmsisNn
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.board_verbs.bench_text import overview, refused, report
from utvm_deploy.cli.compile_options import builds_of
from utvm_deploy.cli.gate import check_before, exit_code, judge
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board, dry_run_step
from utvm_deploy.project.find_cmsis_nn import check_is_for, how_to_build
from utvm_deploy.results.comparing.gate import check_covered
from utvm_deploy.results.comparing.page import comparison_html
from utvm_deploy.results.comparing.recorded import check_recorded_core


def run(args: argparse.Namespace, out: Output) -> int:
    """Compare every model; exit code 1 if one cannot be compared, or if the gate is shut."""
    check_before(args)
    names = check_names(args.models)
    board = board_of(args)
    check_board(args, board)
    if args.baseline is not None:
        check_covered(args.baseline, names, board.name)
    libraries = _libraries(args, board)
    allowed = {"allow_float": args.allow_float}
    with out.progress() as progress:
        if args.dry_run:
            work = Comparing(board, libraries, args.records, out.note, progress, **allowed)
            work.check(args.models)
            return _dry_run(args, board, work)
        theirs: Any = {args.against.replace("-", "_"): libraries, "records": args.records}
        found = utvm_deploy.bench(
            args.models, board, progress=progress, **theirs, **allowed, **connection(args)
        )
    _write(args, found, out)
    result = found.to_dict()
    gate = judge(args, out, SCHEMA, result) if found.figure else {}
    out.found(result | gate)
    return exit_code(gate) if found.ok else 1


def _libraries(args: argparse.Namespace, board: Board) -> tuple[CmsisNn, ...]:
    """The builds of the other engine; none where its figures were recorded earlier."""
    if args.against == MURISCV_NN.option:
        check_is_for(board, MURISCV_NN)
        found = builds_of(args, board, MURISCV_NN)
        if not found:
            raise UsageError(
                f"no figures of {MURISCV_NN.name} were recorded; give your own copy "
                f"(--{MURISCV_NN.option} DIR); {how_to_build(board, MURISCV_NN)}"
            )
        return found
    if args.muriscv_nn or args.muriscv_nn_library:
        raise UsageError(f"--muriscv-nn goes with --against {MURISCV_NN.option}")
    found = builds_of(args, board)
    if not found:
        check_recorded_core(board)
    return found


def _write(args: argparse.Namespace, found: BenchResult, out: Output) -> None:
    """Everything for people to read."""
    for comparison in found.found:
        report(comparison, out)
    if len(found.found) > 1:
        overview(found.found, found.figure, out)
    refused(found.failed, out)
    out.file(args.html, lambda: comparison_html(found.to_dict()))


def _dry_run(args: argparse.Namespace, board: Board, work: Comparing) -> int:
    for model in work.ready:
        for compiled in (model.ours, *model.theirs.values()):
            dry_run_step(args, board, compiled)
    return 1 if work.failed else 0
