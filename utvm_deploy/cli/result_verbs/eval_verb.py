"""utvm eval: how good a model is on labelled data, as float, as int8 and on a board."""

from __future__ import annotations

import argparse
import math
from contextlib import nullcontext
from dataclasses import asdict, fields
from typing import Any

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.compile_options import compile_options, custom_of
from utvm_deploy.cli.options.table import EVALUATED
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import taken
from utvm_deploy.cli.steps import check_board, compile_step, dry_run_step
from utvm_deploy.device import Device
from utvm_deploy.quality.evaluating import facts
from utvm_deploy.quality.evaluating.engines import Plan
from utvm_deploy.quality.evaluating.evaluation import make_plan
from utvm_deploy.quality.evaluating.facts import Evaluation, Settings
from utvm_deploy.quality.evaluating.judging import SMALLER_IS_BETTER, metric_names
from utvm_deploy.quality.evaluating.limits import check_limits
from utvm_deploy.quality.evaluating.page import evaluation_html, metric_text

#: More classes do not fit a terminal as a matrix.
_MOST_COLUMNS = 16
_MOST_LISTED = 10


def report(found: facts.Evaluation, out: Output) -> None:
    """The table of engines, the classes, and what changed."""
    problem = found.problem
    where = "" if found.board is None else f" on {found.board}"
    windows = f" in {len(problem.item):,} windows" if problem.word != "samples" else ""
    out.line(f"{found.model}{where}: {problem.task}, {_items(problem)}{windows} {found.data}")
    out.line(f"inputs: {found.inputs}")
    if problem.task == "anomaly":
        out.line("score: mean squared difference of input and output, in real numbers")
    names = list(dict.fromkeys(name for one in found.judged for name in one.metrics))
    out.table(
        ["", *(f">{name}" for name in names), ">samples/s", "computed by"],
        [_row(one, names) for one in found.judged],
    )
    last = found.judged[-1]
    if last.confusion is not None:
        _classes(last, problem, out)
    is_equal = any(not change.largest_difference for change in found.changes)
    # Where two of three are equal, the last comparison repeats the first one.
    for change in found.changes[: 2 if is_equal else None]:
        out.line(_change(change, problem))
    for note in found.notes:
        out.line(f"note: {note}")


def _items(problem: facts.Problem) -> str:
    return f"1 {problem.word[:-1]}" if problem.items == 1 else f"{problem.items:,} {problem.word}"


def _row(one: facts.Judged, names: list[str]) -> list[object]:
    cells = [
        metric_text(name, _json(one.metrics[name])) if name in one.metrics else "" for name in names
    ]
    return [one.run.engine, *cells, f"{one.run.samples_per_second:,.1f}", one.run.runtime]


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _classes(last: facts.Judged, problem: facts.Problem, out: Output) -> None:
    assert last.confusion is not None
    is_small = problem.classes <= _MOST_COLUMNS
    heads = [">" + problem.class_name(number) for number in range(problem.classes)]
    out.table(
        ["class", f">{problem.word}", ">precision", ">recall", ">F1", *(heads * is_small)],
        [
            [
                figures.name,
                figures.items,
                *(_share(value) for value in (figures.precision, figures.recall, figures.f1)),
                *([f"{count:,}" if count else "." for count in row.tolist()] * is_small),
            ]
            for figures, row in zip(last.per_class, last.confusion, strict=True)
            if figures.items or is_small
        ],
        title=f"by {last.run.engine}" + ("; on the right what was predicted" * is_small),
    )
    if not is_small:
        for pair in facts.confused(last, problem)[:_MOST_LISTED]:
            out.line(f"{pair['items']:,} of {pair['label']} taken for {pair['prediction']}")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _change(change: facts.Change, problem: facts.Problem) -> str:
    between = f"{change.before} -> {change.after}"
    if not change.largest_difference:
        return f"{between}: all values are equal"
    noise = f"; values differ by {change.largest_difference:.3g} at most ({change.sqnr_db:.1f} dB)"
    if problem.task != facts.CLASSIFICATION:
        return f"{between}: {change.changed:,} of {_items(problem)} differ{noise}"
    said = f"{between}: {change.changed:,} of {_items(problem)} change class"
    shown = [
        f"{item.position} ({_label(item.label, problem)}"
        f"{problem.class_name(int(item.before))} -> {problem.class_name(int(item.after))})"
        for item in change.items[:_MOST_LISTED]
    ]
    if change.changed > _MOST_LISTED:
        shown.append("...")
    return said + (f": {', '.join(shown)}" if shown else "") + noise


def _label(label: float | None, problem: facts.Problem) -> str:
    return "" if label is None else f"label {problem.class_name(int(label))}: "


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
        with nullcontext() if board is None else _device(args, board) as device:
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


def _device(args: argparse.Namespace, board: Board) -> Device:
    # Nobody looks at ticks here.
    return utvm_deploy.connect(board, **connection(args))


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
