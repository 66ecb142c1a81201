"""utvm report: one page on a model and a board, or on what tuning found."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utvm_deploy.api.report_function import ReportResult, report
from utvm_deploy.base.errors import RecordsError, UsageError
from utvm_deploy.base.files import check_writable, write_text
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.base.results import picked
from utvm_deploy.cli.arguments import board_of, connection
from utvm_deploy.cli.compile_options import builds_of, keywords
from utvm_deploy.cli.options.kinds import stream_of_options
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board, dry_run
from utvm_deploy.frontend.formats import FORMATS
from utvm_deploy.quality.evaluating.page import metric_text
from utvm_deploy.records import read_records
from utvm_deploy.records.candidate import CMSIS_NN
from utvm_deploy.tuning.report import KernelHistory, histories, tuning_html, unit_label

#: How files of records end; any other file, given with a board, is a model.
_RECORDS = ".jsonl"


def run(args: argparse.Namespace, out: Output) -> int:
    """The report of a model, or of records."""
    if args.board is not None and args.model.suffix != _RECORDS:
        return _model(args, out)
    is_file = args.model.is_file() or not args.model.exists()
    if args.model.suffix.lower() in FORMATS and is_file:
        raise UsageError(
            f"{args.model} is a model, and the report needs a board; give --board, or a file of "
            "records"
        )
    return _records(args, out)


def _model(args: argparse.Namespace, out: Output) -> int:
    board = board_of(args)
    page = args.output or Path(f"{args.model.stem}.{board.name}.html")
    check_outputs(args.model, page)
    for file, what in (
        (args.data, "the data"),
        (args.labels, "the file of labels"),
        (args.reference, "the float model"),
        (args.records, "the file of records"),
    ):
        keep_input(file, what, page)
    if args.data is None and (args.labels or args.reference or args.samples):
        raise UsageError("--labels, --reference and --samples say how --data is used; give --data")
    if args.dry_run:
        return dry_run(args, board, out)
    check_board(args, board)
    with out.progress() as progress:
        options = report_options(args, board)
        found = report(args.model, board, try_it=args.try_it, progress=progress, **options)
    write_report(found, page, out)
    return 0 if found.ok else 1


def report_options(args: argparse.Namespace, board: Any) -> dict[str, Any]:
    """What ``report`` gets for the options of compilation, of the board and of CMSIS-NN."""
    options = keywords(args, board)
    options["library"] = options.pop("cmsis_nn")
    if args.kernels != CMSIS_NN:
        options["cmsis_nn"] = builds_of(args, board) or None
    stream = stream_of_options(args)
    chosen = {
        "inputs": args.inputs or None,
        "signature": args.signature,
        "states": args.states or None,
        "stream": None if stream is None else asdict(stream),
        "image_input": args.image_input,
        "number_format": args.number_format,
    }
    return {**options, **chosen, **connection(args), "given_board": args.board}


def write_report(found: ReportResult, page: Path, out: Output) -> None:
    """The page, and a few lines of what is on it."""
    result = found.to_dict()
    write_text(page, found.html)
    out.line(found.headline)
    if result["bench"]:
        one = result["bench"]["models"][0]
        kernels, whole = one["ratio"], one["end_to_end_ratio"]
        if kernels and whole:
            parts = f": {kernels:.2f} by kernels, {whole / kernels:.2f} by constant channels"
            told = f"{one['source']}{parts if one['in_file'] else ''}"
            out.line(f"CMSIS-NN takes {whole:.2f} times as long ({told})")
    if result["evaluation"]:
        for one in result["evaluation"]["runs"]:
            told = ", ".join(f"{name} {metric_text(name, v)}" for name, v in one["metrics"].items())
            out.line(f"{one['engine']}: {told}")
    for note in result["notes"]:
        out.line(note)
    out.line(f"wrote {page}; `utvm reproduce {page}` makes it again and compares")
    out.found({**result, "output": page})


def _records(args: argparse.Namespace, out: Output) -> int:
    """A table for each setting, and the page."""
    if args.output is not None:
        check_writable(args.output)
        places = (args.output, args.model)
        if all(place.exists() for place in places) and args.output.samefile(args.model):
            raise RecordsError(f"{args.output} holds the records; give another name for the page")
    records = read_records(args.model)
    if not len(records):
        raise RecordsError(f"{args.model} is empty; `utvm tune` fills it")
    found = histories(records)
    for setting, kernels in found.items():
        out.table(
            ["kernel", ">default", ">best", ">per MAC", ">gain", ">trials", ">failed", "candidate"],
            [_row(history) for history in kernels],
            title=f"{setting.core}, {unit_label(setting)}, utvm {setting.utvm}, {setting.compiler}",
        )
    out.file(args.output, lambda: tuning_html(records, args.model.name))
    out.result(
        "utvm.report/1",
        {
            "records": args.model,
            "output": args.output,
            "settings": [
                {
                    **picked(setting, "core", "compiler", "flags", "utvm", "unit"),
                    "cycle_model": setting.model,
                    "kernels": [
                        {
                            "kernel": history.kernel.key,
                            "macs": history.kernel.macs,
                            "trials": len(history.records),
                            "failed": history.errors,
                            "default_ticks": history.default_ticks,
                            "best_ticks": _best_ticks(history),
                            "best": history.best.candidate.to_json() if history.best else None,
                            "gain": history.gain,
                        }
                        for history in kernels
                    ],
                }
                for setting, kernels in found.items()
            ],
        },
    )
    return 0


def _best_ticks(history: KernelHistory) -> int | None:
    return history.best.measurement.ticks_min if history.best else None


def _row(history: KernelHistory) -> list[object]:
    ticks, macs = _best_ticks(history), history.kernel.macs
    return [
        history.kernel.name,
        history.default_ticks,
        ticks,
        ticks / macs if ticks is not None and macs else None,
        None if history.gain is None else f"{history.gain:.2f}x",
        len(history.records),
        history.errors,
        history.best.candidate.label if history.best else "none is right",
    ]
