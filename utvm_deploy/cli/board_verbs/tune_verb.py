"""utvm tune: the fastest kernels for models, found by running them on the board."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.api.tune_function import (
    Limits,
    Prepared,
    Watching,
    library_backend,
    prepare,
    tuned_here,
    tuned_on_cluster,
)
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.cli.arguments import (
    MODEL_HELP,
    Verbs,
    add_board,
    add_emulate,
    add_timing,
    add_verb,
    board_of,
    connection,
    positive,
    seed,
)
from utvm_deploy.cli.board_verbs.tune_text import caption, kernel_rows, report
from utvm_deploy.cli.compile_options import (
    add_cmsis_nn,
    add_no_float,
    add_optimize,
    add_plugin,
    backend_of,
    custom_of,
    library_of,
)
from utvm_deploy.cli.keep_run import add_store
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.cli.steps import check_board
from utvm_deploy.compiler.options import KERNELS
from utvm_deploy.device import Device, connect
from utvm_deploy.records.candidate import CMSIS_NN
from utvm_deploy.service.client.session_server import SCHEME

# A year: a larger number is a mistake.
_MOST_MINUTES = 60 * 24 * 365


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "tune", "find the fastest kernels for models by running them", run
    )
    parser.epilog = (
        "Kernels of float32 are measured with exact float math. A compile with --float-math fast "
        "follows the same records."
    )
    parser.add_argument("models", metavar="MODEL", type=Path, nargs="+", help=MODEL_HELP)
    add_shape(parser)
    add_board(parser, port=True)
    add_emulate(parser)
    add_timing(parser)
    parser.add_argument(
        "--trials",
        metavar="N",
        type=positive,
        help="stop when --records have N candidates; those of earlier runs count, too",
    )
    parser.add_argument(
        "--minutes",
        metavar="M",
        type=_minutes,
        help="stop after this time, even if candidates are left",
    )
    parser.add_argument(
        "--records",
        metavar="R.jsonl",
        type=Path,
        help="where measurements are kept; what is there already is not measured again",
    )
    parser.add_argument(
        "--sketches",
        action="store_true",
        help="for int8 kernels that a SIMD family computes, also search sketches of TVM's rules "
        "and try tensor intrinsics; these trials count for --trials, too",
    )
    parser.add_argument(
        "--kernels",
        choices=(KERNELS[0], CMSIS_NN),
        default=KERNELS[0],
        help="best: ours; cmsis-nn: also measure your CMSIS-NN's function for each kernel, for "
        "`utvm compile --kernels cmsis-nn --records`; default: %(default)s",
    )
    add_cmsis_nn(parser, "for --kernels cmsis-nn, ")
    add_plugin(parser)
    add_optimize(parser)
    add_no_float(parser)
    parser.add_argument(
        "--seed", metavar="S", type=seed, default=0, help="seed of the search; default: %(default)s"
    )
    parser.add_argument(
        "--show-space", action="store_true", help="list every candidate and measure none"
    )
    parser.add_argument(
        "--upgrade-records",
        action="store_true",
        help="upgrade the models' records of version 0.2.0 in --records, and measure none",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="measure at the workers of this Dask scheduler that have the board (tcp://HOST:PORT, "
        "tls://HOST:PORT), at all of them at once",
    )
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        type=Path,
        help="for a cluster at tls://..., what `utvm serve --make-certificates DIR` made",
    )
    add_store(parser)


def _minutes(text: str) -> float:
    """A time to tune, in minutes."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes") from None
    if not 0 < value < _MOST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"{text} minutes is too little or too much time; give more than 0 "
            f"and less than {_MOST_MINUTES:,}"
        )
    return value


def run(args: argparse.Namespace, out: Output) -> int:
    """Tune, or show what there is to choose from."""
    # TVM takes a second to load, which other verbs need not wait for.
    from utvm_deploy.tuning.measuring.place import check_tunable

    board = board_of(args)
    if args.upgrade_records and args.records is None:
        raise UsageError("there are no records to upgrade; give --records R.jsonl")
    if not (args.show_space or args.upgrade_records):
        check_tunable(board)
        if args.records is None:
            raise UsageError("nowhere to keep what is measured; give --records R.jsonl")
        if args.trials is None and args.minutes is None:
            raise UsageError("no end to the tuning; give --trials N or --minutes M, or both")
        _check_cluster(args)
        if args.cluster is None:
            check_board(args, board)
    copy = library_of(args, board)
    library = (
        backend_of(args, board) if copy is None else library_backend(copy, board, args.cmsis_nn)
    )
    made = prepare(
        args.models,
        board,
        library,
        custom_of(args, board),
        sketches=args.sketches,
        allow_float=not args.no_float,
    )
    if args.show_space:
        return _show_space(made.works, board, out)
    if args.upgrade_records:
        return _upgrade(args, made.works, board, out)
    if args.dry_run:
        candidates = sum(len(work.candidates) for work in made.works)
        told = f"{len(made.works)} kernels with {candidates} candidates; nothing run (--dry-run)"
        out.line(told)
        return 0
    return _tune(args, made, out)


def _check_cluster(args: argparse.Namespace) -> None:
    """UsageError for options that do not go with --cluster."""
    if args.cluster is None:
        if args.certificates is not None:
            raise UsageError("--certificates is of a cluster; give --cluster ADDRESS, too")
        return
    if args.board.startswith(SCHEME):
        raise UsageError(
            f"--board {args.board} is a board of a server, and --cluster measures on the boards of "
            "a scheduler's workers; leave one of them out"
        )
    if args.emulate:
        raise UsageError(
            "--emulate runs on this computer, and --cluster measures on the boards of its workers; "
            "leave one of them out"
        )
    for name in ("port", "probe", "serial", "link"):
        if getattr(args, name) is not None:
            raise UsageError(
                f"--{name} says where a board of this computer is, and --cluster measures on the "
                "boards of its workers; leave one of them out"
            )
    if args.timing != CYCLES:
        raise UsageError("workers of a cluster count cycles; leave out --timing or --cluster")
    if args.plugin is not None:
        raise UsageError(
            "workers of a cluster run no code of yours; leave out --plugin, or tune without "
            "--cluster"
        )
    if args.kernels == CMSIS_NN:
        raise UsageError(
            "workers of a cluster have no CMSIS-NN of yours; leave out --kernels cmsis-nn, or tune "
            "without --cluster"
        )


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


def _upgrade(args: argparse.Namespace, works: Sequence[Any], board: Board, out: Output) -> int:
    from utvm_deploy.tuning.upgrade import upgrade_records

    core = board.cpu.kernel_core
    with out.progress() as progress:
        found = upgrade_records(args.records, works, core, dry_run=args.dry_run, progress=progress)
    end = "; nothing written (--dry-run)" if args.dry_run else ""
    out.line(f"{args.records}: upgraded {found.upgraded} records of {core}{end}")
    for why, count in found.kept.items():
        out.line(f"    left as they are, because {why}: {count}")
    out.result(
        "utvm.tune-upgrade/1",
        {"records": args.records, "core": core, "upgraded": found.upgraded, "kept": found.kept},
    )
    return 0


def _tune(args: argparse.Namespace, made: Prepared, out: Output) -> int:
    columns = [
        "kernel",
        ">layers",
        ">before",
        ">best",
        ">per MAC",
        ">trials",
        ">gain",
        "candidate",
    ]
    with out.live_table(columns) as show:
        rows: list[list[object]] = []

        def watch(tuning: Any) -> None:
            rows[:] = kernel_rows(tuning)
            show(rows, caption(tuning))

        limits = Limits(args.trials, args.minutes, args.seed, args.optimize)
        watching = Watching(watch, lambda text: show(rows, text), out.note)
        if args.cluster is None:
            where = connection(args)

            def device(wanted: str | None) -> Device:
                place = where.copy()
                place["link"] = where["link"] or wanted
                return connect(made.board, **place)

            found = tuned_here(made, args.records, limits, device, watching)
        else:
            found = tuned_on_cluster(
                made, args.records, limits, args.cluster, args.certificates, watching
            )
    report(found, out)
    return 0
