"""utvm tune: the fastest kernels for models, found by running them on the board."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

import utvm_deploy
from utvm_deploy.api.tune_function import TuneResult, check_limits, library_backend, prepare
from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.compile_options import backend_of, custom_of, keywords, library_of
from utvm_deploy.cli.options.table import TUNED
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import taken
from utvm_deploy.cli.steps import check_board
from utvm_deploy.tuning.measuring.place import check_tunable
from utvm_deploy.tuning.upgrade import upgrade_records
from utvm_deploy.tuning.winners import winner_of

# The longest name in a line of a log, where there is no terminal.
_LONGEST_NAME = 48


def report(result: TuneResult, out: Output) -> None:
    """The table of kernels, and what became of each model."""
    found, path = result.found, result.records
    unit = found.setting.unit
    out.table(columns(f"before, {unit}"), kernel_rows(found))
    for model_run in result.model_runs:
        out.line(_model_line(model_run, unit))
        for one in result.not_taken:
            if one.model == model_run.name:
                out.line(
                    f"    not followed in {_short(one.kernel)}: {one.candidate.label} "
                    f"({one.ticks:,} alone, {one.taken_ticks:,} by {one.taken.label}): {one.reason}"
                )
    if won := _winners(found):
        out.line(f"fastest alone: {won}")
    new = found.trials - found.trials_before
    out.line(
        f"{new} trials in {found.seconds:.1f} s ({found.per_second:.1f} a second), "
        f"{found.trials} in all, {found.errors} of them failed{_why(found)}; "
        f"records: {path}"
    )
    out.found(result.to_dict())


def _model_line(model_run: Any, unit: str) -> str:
    """What a model takes without the records and with them."""
    if model_run.note:
        return f"{model_run.name}: not measured as a whole: {model_run.note}"
    if model_run.before is None:
        return f"{model_run.name}: compiled as without the records; nothing faster was found"
    if model_run.after == model_run.before:
        kept = "compiled as without the records, which nothing beat as a whole"
        return f"{model_run.name}: {model_run.before:,} {unit}; {kept}"
    gain = model_run.before / max(model_run.after, 1)
    count = len(model_run.changed)
    return (
        f"{model_run.name}: {model_run.before:,} -> {model_run.after:,} {unit} as a whole, "
        f"{gain:.3f} times as fast with {count} other kernel{'s' if count > 1 else ''}"
    )


def columns(before: str) -> list[str]:
    """The heads of ``kernel_rows``; ``before`` may name the unit."""
    return [
        "kernel",
        ">layers",
        f">{before}",
        ">best",
        *(">per MAC", ">trials", ">gain", "candidate"),
    ]


def kernel_rows(tuning: Any) -> list[list[object]]:
    """A row for each kernel."""
    rows: list[list[object]] = []
    for state in tuning.states:
        work, best = state.work, state.best
        ticks = best[1] if best else None
        per_mac = ticks / work.kernel.macs if ticks is not None and work.kernel.macs else None
        rows.append(
            [
                _short(work.kernel.name),
                work.layers,
                state.before_ticks,
                ticks,
                per_mac,
                f"{len(state.measured)}/{len(work.candidates)}{'+' if work.free else ''}",
                f"{state.gain:.2f}x",
                best[0].label if best else "",
            ]
        )
    return rows


def _winners(tuning: Any) -> str:
    """For how many kernels each family, or search by TVM's rules, has the best candidate."""
    counts = Counter(winner_of(state.best[0]) for state in tuning.states if state.best)
    return ", ".join(
        f"{name} in {count} kernel{'s' if count > 1 else ''}"
        for name, count in counts.most_common()
    )


def _why(tuning: Any) -> str:
    """How often each error came, in brackets; nothing if none did."""
    measured = [m for state in tuning.states for m in state.measured.values()]
    counts = Counter(m.error for m in measured if not m.is_ok)
    return f" ({', '.join(f'{n} {error}' for error, n in counts.items())})" if counts else ""


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def caption(tuning: Any) -> str:
    """How far the tuning is, in a line."""
    left = "" if tuning.seconds_left is None else f", {tuning.seconds_left:.0f} s left"
    before, after = tuning.total(tuned=False), tuning.total(tuned=True)
    gain = f", kernels alone {before / after:.2f} times as fast" if before and after else ""
    return f"tuning: {tuning.trials} of {tuning.trials_wanted} trials{gain}{left}"


def run(args: argparse.Namespace, out: Output) -> int:
    """Tune, or show what there is to choose from."""
    board = board_of(args)
    if args.upgrade_records and args.records is None:
        raise UsageError("there are no records to upgrade; give --records R.jsonl")
    if not (args.show_space or args.upgrade_records):
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
    copy = library_of(args, board)
    library = (
        backend_of(args, board) if copy is None else library_backend(copy, board, args.cmsis_nn)
    )
    custom, chosen = custom_of(args, board), {"sketches": args.sketches}
    made = prepare(args.models, board, library, custom, allow_float=args.allow_float, **chosen)
    if args.show_space:
        return _show_space(made.works, board, out)
    if args.upgrade_records:
        return _upgrade(args, made.works, board, out)
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


def _upgrade(args: argparse.Namespace, works: Sequence[Any], board: Board, out: Output) -> int:
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


def _tune(args: argparse.Namespace, board: Board, out: Output) -> int:
    with out.live_table(columns("before")) as show:
        rows: list[list[object]] = []

        def watch(tuning: Any) -> None:
            rows[:] = kernel_rows(tuning)
            show(rows, caption(tuning))

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
