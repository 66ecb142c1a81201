"""utvm report: what tuning found, as a table and as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from utvm_deploy.base.errors import RecordsError
from utvm_deploy.base.files import check_writable, write_text
from utvm_deploy.cli.arguments import Verbs, add_verb
from utvm_deploy.cli.output import Output
from utvm_deploy.records import read_records
from utvm_deploy.tuning.report import KernelHistory, histories, tuning_html, unit_label


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, common, "report", "show what tuning found in a records file", run)
    parser.add_argument("records", metavar="R.jsonl", type=Path, help="what `utvm tune` wrote")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help="also write a page with curves, which needs nothing outside",
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """A table for each setting, and the page."""
    if args.output is not None:
        check_writable(args.output)
        places = (args.output, args.records)
        if all(place.exists() for place in places) and args.output.samefile(args.records):
            raise RecordsError(f"{args.output} holds the records; give another name for the page")
    records = read_records(args.records)
    if not len(records):
        raise RecordsError(f"{args.records} is empty; `utvm tune` fills it")
    found = histories(records)
    for setting, kernels in found.items():
        out.table(
            ["kernel", ">default", ">best", ">per MAC", ">gain", ">trials", ">failed", "candidate"],
            [_row(history) for history in kernels],
            title=f"{setting.core}, {unit_label(setting)}, utvm {setting.utvm}, {setting.compiler}",
        )
    if args.output is not None:
        if not args.dry_run:
            write_text(args.output, tuning_html(records, args.records.name))
        out.line("nothing written (--dry-run)" if args.dry_run else f"wrote {args.output}")
    out.result(
        "utvm.report/1",
        {
            "records": args.records,
            "output": args.output,
            "settings": [
                {
                    "core": setting.core,
                    "compiler": setting.compiler,
                    "flags": setting.flags,
                    "utvm": setting.utvm,
                    "unit": setting.unit,
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
