"""utvm tune: the fastest kernels for models, found by running them on the board."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import utvm_deploy
from utvm_deploy.api.tune_function import check_limits, library_backend, prepare
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.board_verbs.tune_text import caption, columns, kernel_rows, report
from utvm_deploy.cli.compile_options import backends_of, custom_of, keywords, library_of
from utvm_deploy.cli.options.table import TUNED
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import taken
from utvm_deploy.cli.steps import check_board
from utvm_deploy.tuning.measuring.place import check_tunable


def run(args: argparse.Namespace, out: Output) -> int:
    """Tune, or show what there is to choose from."""
    board = board_of(args)
    if not args.show_space:
        check_tunable(board)
        if args.records is None:
            raise UsageError("nowhere to keep what is measured; give --records R.jsonl")
        if args.cluster is not None and args.emulate:
            raise UsageError(
                "--emulate runs on this computer, and --cluster measures on the boards of its "
                "workers; leave one of them out"
            )
        check_limits(**taken(args, TUNED), **connection(args))
        if not args.dry_run:
            return _tune(args, board, out)
        if args.cluster is None:
            check_board(args, board)
    copy, backends = library_of(args, board), backends_of(args, board)
    if copy is not None:
        backends = (*backends, library_backend(copy, board, args.cmsis_nn))
    custom, chosen = custom_of(args, board), {"sketches": args.sketches}
    made = prepare(args.models, board, backends, custom, allow_float=args.allow_float, **chosen)
    if args.show_space:
        return _show_space(made.works, board, out)
    candidates = sum(len(work.candidates) for work in made.works)
    out.line(f"{len(made.works)} kernels with {candidates} candidates; nothing run (--dry-run)")
    return 0


def _show_space(works: Sequence[Any], board: Board, out: Output) -> int:
    for work in works:
        out.line(f"{work.kernel.key}: {len(work.candidates)} candidates, {work.layers} layers")
        for candidate in work.candidates:
            mark = "  (default)" if candidate == work.default else ""
            out.line(f"    {candidate.label}{mark}")
        if work.free is not None:
            also = f" and {work.intrinsics} tensor intrinsics" if work.intrinsics else ""
            out.line(
                f"    and the template-free space: sketches of TVM's rules with any decisions{also}"
            )
    out.result(
        "utvm.tune-space/1",
        {
            "board": board.name,
            "core": board.cpu.kernel_core,
            "kernels": [
                {
                    "kernel": work.kernel.key,
                    "layers": work.layers,
                    "macs": work.kernel.macs,
                    "candidates": [candidate.to_json() for candidate in work.candidates],
                    "template_free": work.free is not None,
                    "tensor_intrinsics": work.intrinsics,
                }
                for work in works
            ],
        },
    )
    return 0


def _tune(args: argparse.Namespace, board: Board, out: Output) -> int:
    with out.live_table(columns("before")) as show:
        rows: list[list[object]] = []

        def watch(tuning: Any) -> None:
            rows[:] = kernel_rows(tuning)
            show(rows, caption(tuning))
            before, best = tuning.total(tuned=False), tuning.total(tuned=True)
            trials, wanted = tuning.trials, tuning.trials_wanted
            out.event("tuning", trials=trials, wanted=wanted, before=before, best=best)

        found = utvm_deploy.tune(
            args.models,
            board,
            args.records,
            watch=watch,
            progress=lambda what, *_: show(rows, what),
            **{**keywords(args, board), **connection(args)},
        )
    report(found, out)
    return 0
