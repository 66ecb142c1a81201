"""utvm compare: two runs, files or jobs side by side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from utvm_deploy.api.compare_function import HEXADECIMAL, compared, figures_of
from utvm_deploy.base.files import check_writable
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.server_arguments import RESULT, open_server
from utvm_deploy.results.comparing.gate import Ours, baseline_of
from utvm_deploy.results.runs.comparable import check_compared
from utvm_deploy.results.runs.difference import Difference
from utvm_deploy.results.runs.page import compare_html, figure_text
from utvm_deploy.results.runs.store import KEY_DIGITS, RunStore

#: Before the digits of a job.
_JOB = "job:"


def run(args: argparse.Namespace, out: Output) -> int:
    """A table for each model; exit code 1 if --fail-over is exceeded."""
    if args.html is not None:
        check_writable(args.html)
    before, now = (_figures(one, args, out) for one in (args.before, args.now))
    result = compared(before, now, args.fail_over)
    for one in result.found:
        _report(one, out)
    out.file(args.html, lambda: compare_html(result.found, args.before, args.now))
    if result.grown:
        out.line(f"GREW by more than {args.fail_over:g} %:")
    for item in result.grown:
        out.line(f"  {item}")
    out.found(result.to_dict())
    return 0 if result.ok else 1


def _figures(name: str, args: argparse.Namespace, out: Output) -> tuple[Ours, ...]:
    """Our figures of a file, a run or a job."""
    is_file = Path(name).is_file()
    if not is_file and name.startswith(_JOB):
        return _figures_of_job(name.removeprefix(_JOB), args, out)
    has_server = bool(args.server or os.environ.get("UTVM_SERVER"))
    if not is_file and has_server and len(name) == KEY_DIGITS and set(name) <= HEXADECIMAL:
        with RunStore(runs_file()) as store:
            is_run = store.has(name)
        # The digits of a run and of a job look the same.
        if not is_run:
            return _figures_of_job(name, args, out)
    return figures_of(name, name)


def _figures_of_job(key: str, args: argparse.Namespace, out: Output) -> tuple[Ours, ...]:
    with open_server(args, out) as server:
        from utvm_deploy.service.client.download import content

        job = server.job(key)
        check_compared(f"job {job.key}", job.verb)
        return baseline_of(content(server, job, RESULT), f"the result of job {job.key}")


def _report(found: Difference, out: Output) -> None:
    boards = " and ".join(dict.fromkeys(found.boards))
    out.table(
        ["", ">before", ">now", ">change", "unit"],
        [
            (
                change.what,
                figure_text(change, change.before),
                figure_text(change, change.now),
                change.percent_text,
                change.unit,
            )
            for change in found.changes
        ],
        title=f"{found.model} on {boards}",
    )
