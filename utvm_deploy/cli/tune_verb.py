"""utvm tune: the fastest kernels for models, found by running them on the board."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import TuneError, UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.arguments import (
    Verbs,
    add_board,
    add_verb,
    board_of,
    connection,
    positive,
    seed,
)
from utvm_deploy.cli.compile_options import add_cmsis_nn, add_optimize, library_of
from utvm_deploy.cli.keep_run import add_store
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board
from utvm_deploy.cmsis_nn import CmsisNn
from utvm_deploy.compiler.options import KERNELS
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes import simplify
from utvm_deploy.records.candidate import CMSIS_NN, Candidate

# A year: a larger number is a mistake.
_MOST_MINUTES = 60 * 24 * 365
# The longest name in a line of a log, where there is no terminal.
_LONGEST_NAME = 48


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "tune", "find the fastest kernels for models by running them", run
    )
    parser.add_argument("models", metavar="MODEL", type=Path, nargs="+", help="int8 .tflite files")
    add_board(parser, port=True)
    parser.add_argument(
        "--trials",
        metavar="N",
        type=positive,
        help="candidates in all, those that the records have already included",
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
        "--kernels",
        choices=(KERNELS[0], CMSIS_NN),
        default=KERNELS[0],
        help="best: ours; cmsis-nn: your CMSIS-NN's call of each kernel as one more candidate, for "
        "`utvm compile --kernels cmsis-nn --records`; default: %(default)s",
    )
    add_cmsis_nn(parser, "for --kernels cmsis-nn, ")
    add_optimize(parser)
    parser.add_argument(
        "--seed", metavar="S", type=seed, default=0, help="of the search; default: %(default)s"
    )
    parser.add_argument(
        "--show-space", action="store_true", help="list every candidate and measure none"
    )
    parser.add_argument(
        "--upgrade-records",
        action="store_true",
        help="upgrade the models' records of version 0.2.0 in --records, and measure none",
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
    from utvm_deploy.tuning.place import check_tunable
    from utvm_deploy.tuning.workload import workload

    board = board_of(args)
    if args.upgrade_records and args.records is None:
        raise UsageError("there are no records to upgrade; give --records R.jsonl")
    if not (args.show_space or args.upgrade_records):
        check_tunable(board)
        if args.records is None:
            raise UsageError("nowhere to keep what is measured; give --records R.jsonl")
        if args.trials is None and args.minutes is None:
            raise UsageError("no end to the tuning; give --trials N or --minutes M, or both")
        check_board(args, board)
    library = library_of(args, board)
    if library is not None and not library.library:
        raise TuneError(
            f"{args.cmsis_nn or 'CMSIS-NN'} holds sources alone, and candidates are linked without "
            f"Zephyr; name a library built for {board.cpu.core} (--cmsis-nn-library FILE)"
        )
    graphs = [replace(simplify(load_model(path)), name=path.stem) for path in args.models]
    works = workload(graphs, board.cpu.kernel_core, library)
    if args.show_space:
        return _show_space(works, board, out)
    if args.upgrade_records:
        return _upgrade(args, works, board, out)
    if args.dry_run:
        candidates = sum(len(work.candidates) for work in works)
        out.line(f"{len(works)} kernels with {candidates} candidates; nothing run (--dry-run)")
        return 0
    return _tune(args, graphs, works, board, library, out)


def _show_space(works: Sequence[Any], board: Board, out: Output) -> int:
    for work in works:
        out.line(f"{work.kernel.key}: {len(work.candidates)} candidates, {work.layers} layers")
        for candidate in work.candidates:
            mark = "  (default)" if candidate == work.default else ""
            out.line(f"    {candidate.label}{mark}")
        if work.free is not None:
            out.line("    and the template-free space: sketches of TVM's rules with any decisions")
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


def _tune(
    args: argparse.Namespace,
    graphs: Sequence[Graph],
    works: Sequence[Any],
    board: Board,
    library: CmsisNn | None,
    out: Output,
) -> int:
    from utvm_deploy.tuning.model_runs import run_model
    from utvm_deploy.tuning.place import fastest_link
    from utvm_deploy.tuning.records_file import RecordsFile
    from utvm_deploy.tuning.tuner import Tuning, tune

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
    where = connection(args)
    fast = connection(args)
    fast["link"] = fast["link"] or fastest_link(board)
    with RecordsFile(args.records) as file, out.live_table(columns) as show:
        show([], f"starting {board.name}")
        kept = len(file.records)
        rows: list[list[object]] = []

        def watch(tuning: Tuning) -> None:
            rows[:] = _rows(tuning)
            show(rows, _caption(tuning))
            out.event(
                "tuning",
                trials=tuning.trials,
                wanted=tuning.trials_wanted,
                before=tuning.total(tuned=False),
                best=tuning.total(tuned=True),
            )

        trials = args.trials or sum(work.trials for work in works)
        options = {"level": args.optimize, "library": library}
        try:
            with connect(board, **fast) as device:
                found = tune(
                    works,
                    device,
                    file,
                    trials=trials,
                    minutes=args.minutes,
                    seed=args.seed,
                    watch=watch,
                    **options,
                )
            # Over the link that other verbs take: a debugger's writes leave the caches as they are.
            show(rows, f"starting {board.name} for whole models")
            with connect(board, **where) as device:
                model_runs = [
                    run_model(
                        graph,
                        device,
                        file,
                        found.setting,
                        tell=lambda text: show(rows, text),
                        **options,
                    )
                    for graph in graphs
                ]
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(args.records, kept, len(file.records))) from None
    _report(found, model_runs, args.records, out)
    return 0


def _kept(path: Path, before: int, after: int) -> str:
    """What Ctrl-C leaves."""
    if not after:
        return f"no trial is recorded in {path} yet; the same command starts again"
    new = f", {after - before} of them new" if before else ""
    are = "trial is" if after == 1 else "trials are"
    return f"{after} {are} recorded in {path}{new}; the same command continues from there"


def _report(found: Any, model_runs: Sequence[Any], path: Path, out: Output) -> None:
    """The table of kernels, and what became of each model."""
    unit = found.setting.unit
    columns = ["kernel", ">layers", f">before, {unit}", ">best", ">per MAC", ">trials", ">gain"]
    out.table([*columns, "candidate"], _rows(found))
    unfollowed = _not_followed(found, model_runs)
    for model_run in model_runs:
        out.line(_model_line(model_run, unit))
        for one in unfollowed:
            if one.model == model_run.name:
                out.line(
                    f"    not followed in {_short(one.kernel)}: {one.candidate.label} "
                    f"({one.ticks:,} alone, {one.taken_ticks:,} by {one.taken.label}): {one.reason}"
                )
    new = found.trials - found.trials_before
    out.line(
        f"{new} trials in {found.seconds:.1f} s ({found.per_second:.1f} a second), "
        f"{found.trials} in all, {found.errors} of them failed{_why(found)}; "
        f"records: {path}"
    )
    out.result(
        "utvm.tune/2", {**_json(found), **_json_model_runs(model_runs, unfollowed), "records": path}
    )


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


def _not_followed(found: Any, model_runs: Sequence[Any]) -> list[Any]:
    from utvm_deploy.tuning.model_runs import not_followed

    states = {state.work.kernel.key: state for state in found.states}

    def ticks(key: str, candidate: Candidate) -> int | None:
        measured = states[key].measured.get(candidate)
        return measured.ticks_min if measured is not None and measured.is_ok else None

    best = {key: state.best for key, state in states.items() if state.best is not None}
    return not_followed(model_runs, best, ticks, found.scratch, found.setting.core)


def _rows(tuning: Any) -> list[list[object]]:
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


def _why(tuning: Any) -> str:
    """How often each error came, in brackets; nothing if none did."""
    measured = [m for state in tuning.states for m in state.measured.values()]
    counts = Counter(m.error for m in measured if not m.is_ok)
    return f" ({', '.join(f'{n} {error}' for error, n in counts.items())})" if counts else ""


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _caption(tuning: Any) -> str:
    left = "" if tuning.seconds_left is None else f", {tuning.seconds_left:.0f} s left"
    before, after = tuning.total(tuned=False), tuning.total(tuned=True)
    gain = f", kernels alone {before / after:.2f} times as fast" if before and after else ""
    return f"tuning: {tuning.trials} of {tuning.trials_wanted} trials{gain}{left}"


def _json_model_runs(model_runs: Sequence[Any], unfollowed: Sequence[Any]) -> dict[str, Any]:
    return {
        "models": [
            {
                "model": model_run.name,
                "ticks_before": model_run.before,
                "ticks_after": model_run.after,
                "changed": model_run.changed,
                "slower_in_place": {
                    key: {"before": before, "after": after}
                    for key, (before, after) in model_run.slower.items()
                },
                "note": model_run.note,
            }
            for model_run in model_runs
        ],
        "not_followed": [
            {
                "model": one.model,
                "kernel": one.kernel,
                "candidate": one.candidate.to_json(),
                "ticks": one.ticks,
                "taken": one.taken.to_json(),
                "taken_ticks": one.taken_ticks,
                "reason": one.reason,
            }
            for one in unfollowed
        ],
    }


def _json(tuning: Any) -> dict[str, Any]:
    setting = tuning.setting
    return {
        "core": setting.core,
        "compiler": setting.compiler,
        "flags": setting.flags,
        "unit": setting.unit,
        "cycle_model": setting.model,
        "trials": tuning.trials,
        "trials_before": tuning.trials_before,
        "failed": tuning.errors,
        "seconds": tuning.seconds,
        "candidates_per_second": tuning.per_second,
        "seconds_lower": tuning.lower_s,
        "seconds_load": tuning.load_s,
        "seconds_run": tuning.run_s,
        "ticks_before": tuning.total(tuned=False),
        "ticks_best": tuning.total(tuned=True),
        "kernels": [
            {
                "kernel": state.work.kernel.key,
                "layers": state.work.layers,
                "macs": state.work.kernel.macs,
                "trials": len(state.measured),
                "candidates": len(state.work.candidates),
                "default_ticks": state.default_ticks,
                "before": state.before.to_json(),
                "before_ticks": state.before_ticks,
                "best_ticks": state.best[1] if state.best else None,
                "best": state.best[0].to_json() if state.best else None,
                "gain": state.gain,
            }
            for state in tuning.states
        ],
    }
