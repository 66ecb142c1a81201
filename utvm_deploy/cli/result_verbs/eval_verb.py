"""utvm eval: how good a model is on labelled data, as float, as int8 and on a board."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import (
    Verbs,
    add_board,
    add_emulate,
    add_model,
    add_name,
    add_verb,
    board_of,
    connection,
    positive,
)
from utvm_deploy.cli.compile_options import add_compile_options, compile_options, custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.result_verbs.eval_text import report
from utvm_deploy.cli.steps import check_board, compile_step, dry_run_step
from utvm_deploy.device import Device
from utvm_deploy.quality.datasets.sample_files import RAW_TYPES
from utvm_deploy.quality.evaluating.engines import Plan
from utvm_deploy.quality.evaluating.evaluation import make_plan
from utvm_deploy.quality.evaluating.facts import TASKS, Evaluation, Settings
from utvm_deploy.quality.evaluating.judging import SMALLER_IS_BETTER, metric_names
from utvm_deploy.quality.evaluating.limits import Limit, check_limits, limit_of
from utvm_deploy.quality.evaluating.page import evaluation_html

SCHEMA = "utvm.eval/1"


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "eval", "accuracy on labelled data, on this computer and on a board", run
    )
    add_model(parser)
    add_board(parser, port=True, needed=False)
    add_emulate(parser)
    add_name(parser)
    _add_data(parser)
    add_compile_options(parser)
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write a page")
    group = parser.add_argument_group("gate: exit 1 if a metric")
    for option, is_least in (("--min", True), ("--max", False)):
        group.add_argument(
            option,
            dest="limits",
            metavar="METRIC=VALUE",
            type=_limit(is_least),
            action="append",
            default=[],
            help=f"is {'less' if is_least else 'more'} than this on the board (without --board: by "
            f"the reference kernels), such as {'accuracy=0.9' if is_least else 'rmse=2.5'}; may be "
            "given several times",
        )


def _add_data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the data, and what the output means")
    group.add_argument(
        "--data",
        metavar="DATA",
        type=Path,
        required=True,
        help="labelled samples: .npz, .npy, .csv, a folder with a folder for each class, or MLPerf "
        "Tiny's folder with y_labels.csv",
    )
    group.add_argument(
        "--labels", metavar="FILE.npy", type=Path, help="the labels or targets, from this file"
    )
    group.add_argument(
        "--raw-type",
        choices=RAW_TYPES,
        help="the type of the elements in .bin files; uint8: 128 is subtracted for int8 inputs; "
        "default: by size, but bytes for an int8 input need this option",
    )
    group.add_argument(
        "--reference",
        metavar="FLOATMODEL",
        type=Path,
        help="the float model that MODEL was made from: .tflite, .onnx or .pt2",
    )
    group.add_argument(
        "--samples",
        metavar="N",
        type=positive,
        help="take only N samples, spread evenly; if samples are windows: N recordings",
    )
    group.add_argument(
        "--task", choices=TASKS, help="what the output is; default: by the data and its shape"
    )
    group.add_argument(
        "--output", metavar="N", type=int, default=0, help="which output; default: %(default)s"
    )
    group.add_argument(
        "--top-k",
        metavar="K",
        type=positive,
        default=Settings.top_k,
        help="also how often the right class is among the best K; default: %(default)s",
    )
    group.add_argument(
        "--threshold",
        metavar="T",
        type=float,
        default=Settings.threshold,
        help="a single score of at least this is class 1; default: %(default)s",
    )


def _limit(is_least: bool) -> Callable[[str], Limit]:
    def parse(text: str) -> Limit:
        try:
            return limit_of(text, is_least=is_least)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not METRIC=VALUE, such as accuracy=0.9"
            ) from None

    return parse


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if a metric does not keep its limit."""
    check_outputs(args.model, args.html)
    keep_input(args.data, "the data", args.html)
    keep_input(args.labels, "the file of labels", args.html)
    keep_input(args.reference, "the float model", args.html)
    board = None if args.board is None else board_of(args)
    if board is None and args.plugin is not None:
        raise UsageError("--plugin needs a board; give --board")
    if board is not None:
        check_board(args, board)
    data: dict[str, Any] = {
        "reference": args.reference,
        "samples": args.samples,
        "labels": args.labels,
        "raw_type": args.raw_type,
    }
    settings = Settings(args.task, args.output, args.top_k, args.threshold)
    with out.progress() as progress:
        if args.dry_run:
            custom = None if board is None else custom_of(args, board)
            _check_limits(args, make_plan(args.model, args.data, settings, custom=custom, **data))
            if board is None:
                return 0
            return dry_run_step(args, board, compile_step(args, board, progress))
        with nullcontext() if board is None else _device(args, board) as device:
            found = utvm_deploy.evaluate(
                args.model,
                args.data,
                device,
                **data,
                **asdict(settings),
                check_plan=lambda plan: _check_limits(args, plan),
                progress=progress,
                **({} if board is None else compile_options(args, board) | {"name": args.name}),
            )
    return _finish(args, out, found)


def _device(args: argparse.Namespace, board: Board) -> Device:
    # Nobody looks at ticks here.
    return utvm_deploy.connect(board, **connection(args))


def _check_limits(args: argparse.Namespace, plan: Plan) -> None:
    names = metric_names(plan.problem, plan.reference is not None)
    check_limits(args.limits, names, SMALLER_IS_BETTER)


def _finish(args: argparse.Namespace, out: Output, found: Evaluation) -> int:
    result: dict[str, Any] = found.to_json()
    report(found, out)
    if args.html is not None:
        write_text(args.html, evaluation_html(result))
        out.line(f"wrote {args.html}")
    broken = [limit for limit in args.limits if not limit.is_kept(found.metrics)]
    if args.limits:
        result["gate"] = {
            "ok": not broken,
            "limits": [
                {**asdict(limit), "found": result["metrics"].get(limit.metric)}
                for limit in args.limits
            ],
        }
    for limit in broken:
        value = found.metrics.get(limit.metric)
        shown = "has no value" if value is None else f"is {value:.4g}"
        out.line(
            f"OUT OF THE LIMIT: {limit.metric} {shown}; it should be at "
            f"{'least' if limit.is_least else 'most'} {limit.value:g}"
        )
    if args.limits and not broken:
        out.line(f"gate: {', '.join(map(str, args.limits))}: kept")
    out.result(SCHEMA, result)
    return 1 if broken else 0
