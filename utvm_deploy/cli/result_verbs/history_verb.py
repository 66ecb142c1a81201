"""utvm history: the runs of a model on this computer."""

from __future__ import annotations

import argparse
from pathlib import Path

from utvm_deploy.base.files import file_digest
from utvm_deploy.base.paths import runs_file
from utvm_deploy.base.results import picked
from utvm_deploy.cli.output import Output, when
from utvm_deploy.results.runs.store import RunStore

_DIGEST_DIGITS = 8
_COLUMNS = (
    *("run", "when", "verb", "model", "file", "board", "git"),
    *(">figure", "", ">RAM", ">flash", ""),
)


def run(args: argparse.Namespace, out: Output) -> int:
    """A line for each run, the newest first."""
    model = args.model or ""
    if model and Path(model).is_file():
        model = file_digest(Path(model))
    with RunStore(runs_file()) as store:
        found = store.find(model=model, board=args.board, verb=args.of, most=args.most)
    if found:
        out.table(
            _COLUMNS,
            [
                (
                    *(one.key, when(one.started), one.verb),
                    *(model.name, model.sha256[:_DIGEST_DIGITS], one.board, one.git),
                    *(model.ticks, model.unit, model.ram_bytes, model.flash_bytes),
                    "" if one.is_good else f"exit code {one.exit_code}",
                )
                for one in found
                for model in one.models
            ],
        )
    else:
        out.line("no runs; verify, profile, tune and bench keep theirs")
    out.result(
        "utvm.history/1",
        {
            "store": runs_file(),
            "runs": [
                {
                    "run": one.key,
                    **picked(
                        one,
                        "started",
                        "seconds",
                        "verb",
                        "exit_code",
                        "board",
                        "git",
                        "versions",
                        "options",
                    ),
                    "models": [vars(model) for model in one.models],
                }
                for one in found
            ],
        },
    )
    return 0
