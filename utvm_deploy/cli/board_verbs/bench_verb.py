"""utvm bench: our kernels against another engine's, layer by layer."""

from __future__ import annotations

import argparse
from pathlib import Path

import utvm_deploy
from utvm_deploy.api.bench_function import CMSIS_NN, SCHEMA, BenchResult, benched, check_names
from utvm_deploy.api.bench_models import Comparing
from utvm_deploy.base.files import write_text
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import (
    MODEL_HELP,
    Verbs,
    add_board,
    add_emulate,
    add_timing,
    add_verb,
    board_of,
    connection,
)
from utvm_deploy.cli.board_verbs.bench_text import overview, refused, report
from utvm_deploy.cli.compile_options import (
    add_cmsis_nn,
    add_no_float,
    add_records,
    cmsis_nn_builds_of,
)
from utvm_deploy.cli.gate import add_gate, check_before, exit_code, judge
from utvm_deploy.cli.keep_run import add_store
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.cli.steps import check_board, dry_run_step
from utvm_deploy.results.comparing.gate import check_covered
from utvm_deploy.results.comparing.page import comparison_html
from utvm_deploy.results.comparing.recorded import check_recorded_core

ENGINES = (CMSIS_NN,)


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "bench", "compare our kernels with CMSIS-NN's, layer by layer", run
    )
    parser.add_argument("models", metavar="MODEL", type=Path, nargs="+", help=MODEL_HELP)
    add_shape(parser)
    add_board(parser, port=True)
    add_emulate(parser)
    add_timing(parser)
    parser.add_argument("--against", choices=ENGINES, default=ENGINES[0], help="the other engine")
    add_cmsis_nn(
        parser,
        "",
        "; of several builds, the fastest for each model is compared; without any: figures that "
        "were recorded earlier",
        several=True,
    )
    add_records(parser)
    add_no_float(parser)
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with tables and bars"
    )
    add_gate(parser)
    add_store(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """Compare every model; exit code 1 if one cannot be compared, or if the gate is shut."""
    check_before(args)
    names = check_names(args.models)
    board = board_of(args)
    check_board(args, board)
    if args.baseline is not None:
        check_covered(args.baseline, names, board.name)
    libraries = cmsis_nn_builds_of(args, board)
    if not libraries:
        check_recorded_core(board)
    with out.progress() as progress:
        work = Comparing(
            board, libraries, args.records, out.note, progress, allow_float=not args.no_float
        )
        if args.dry_run:
            work.check(args.models)
            return _dry_run(args, board, work)
        found = benched(
            work, args.models, board, lambda: utvm_deploy.connect(board, **connection(args))
        )
    _write(args, found, out)
    result = found.to_dict()
    gate = judge(args, out, SCHEMA, result) if found.figure else {}
    out.found(result | gate)
    return exit_code(gate) if found.ok else 1


def _write(args: argparse.Namespace, found: BenchResult, out: Output) -> None:
    """Everything for people to read."""
    for comparison in found.found:
        report(comparison, out)
    if len(found.found) > 1:
        overview(found.found, found.figure, out)
    refused(found.failed, out)
    if args.html is not None:
        write_text(args.html, comparison_html(found.to_dict()))
        out.line(f"wrote {args.html}")


def _dry_run(args: argparse.Namespace, board: Board, work: Comparing) -> int:
    for model in work.ready:
        for compiled in (model.ours, *model.theirs.values()):
            dry_run_step(args, board, compiled)
    return 1 if work.failed else 0
