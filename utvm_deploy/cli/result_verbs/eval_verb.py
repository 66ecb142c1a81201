"""utvm eval: how good a model is on labelled data, as float, as int8 and on a board."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import asdict, fields
from typing import Any

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import compile_options, custom_of
from utvm_deploy.cli.options.table import EVALUATED
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import taken
from utvm_deploy.cli.result_verbs.eval_text import report
from utvm_deploy.cli.steps import check_board, compile_step, device_of, dry_run_step
from utvm_deploy.quality.evaluating.engines import Plan
from utvm_deploy.quality.evaluating.evaluation import make_plan
from utvm_deploy.quality.evaluating.facts import Evaluation, Settings
from utvm_deploy.quality.evaluating.judging import SMALLER_IS_BETTER, metric_names
from utvm_deploy.quality.evaluating.limits import check_limits
from utvm_deploy.quality.evaluating.page import evaluation_html

SCHEMA = "utvm.eval/1"


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
    options = taken(args, EVALUATED)
    del options["data"]
    with out.progress() as progress:
        if args.dry_run:
            settings = Settings(*(options.pop(one.name) for one in fields(Settings)))
            custom = None if board is None else custom_of(args, board)
            plan = make_plan(args.model, args.data, settings, custom=custom, **options)
            _check_limits(args, plan)
            if board is None:
                return 0
            return dry_run_step(args, board, compile_step(args, board, progress))
        with nullcontext() if board is None else device_of(args, board) as device:
            found = utvm_deploy.evaluate(
                args.model,
                args.data,
                device,
                **options,
                check_plan=lambda plan: _check_limits(args, plan),
                progress=progress,
                **({} if board is None else compile_options(args, board)),
            )
    return _finish(args, out, found)


def _check_limits(args: argparse.Namespace, plan: Plan) -> None:
    names = metric_names(plan.problem, plan.reference is not None)
    check_limits(args.limits, names, SMALLER_IS_BETTER)


def _finish(args: argparse.Namespace, out: Output, found: Evaluation) -> int:
    result: dict[str, Any] = found.to_json()
    report(found, out)
    out.file(args.html, lambda: evaluation_html(result))
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
