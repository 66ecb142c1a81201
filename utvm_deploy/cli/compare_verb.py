"""utvm compare: two runs, files or jobs side by side."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from utvm_deploy.base.errors import BenchError
from utvm_deploy.base.files import check_writable, write_text
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.arguments import Verbs, add_verb
from utvm_deploy.cli.gate import percent
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.server_arguments import RESULT, add_server, open_server
from utvm_deploy.comparing.gate import Ours, baseline_of, growths, read_baseline
from utvm_deploy.runs.comparable import check_compared, figures_of_run
from utvm_deploy.runs.difference import Difference, differences
from utvm_deploy.runs.page import compare_html
from utvm_deploy.runs.store import KEY_DIGITS, RunStore

#: Before the digits of a job.
_JOB = "job:"


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, common, "compare", "compare two runs of profile or bench", run)
    for name, what in (("before", "the earlier"), ("now", "the later")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"{what} run: its digits from `utvm history`, a file with its --json result, or "
            "a server's job (job:DIGITS)",
        )
    parser.add_argument(
        "--fail-over",
        metavar="P%",
        type=percent,
        help="exit 1 if a layer, the whole model, its RAM or its flash grew by more than this",
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with tables and bars"
    )
    add_server(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    """A table for each model; exit code 1 if --fail-over is exceeded."""
    if args.html is not None:
        check_writable(args.html)
    before, now = (_figures(one, args, out) for one in (args.before, args.now))
    found = differences(before, now)
    for one in found:
        _report(one, out)
    if args.html is not None and not args.dry_run:
        write_text(args.html, compare_html(found, args.before, args.now))
        out.line(f"wrote {args.html}")
    allowed = args.fail_over
    grown = [] if allowed is None else growths(before, now, allowed, with_sizes=True)
    if grown:
        out.line(f"GREW by more than {args.fail_over:g} %:")
    for item in grown:
        out.line(f"  {item}")
    out.result(
        "utvm.compare/1",
        {
            "models": [
                {
                    "name": one.model,
                    "boards": one.boards,
                    "changes": [
                        vars(change) | {"percent": change.percent} for change in one.changes
                    ],
                }
                for one in found
            ],
            "fail_over_percent": args.fail_over,
            "grown": [asdict(item) for item in grown],
            "ok": not grown,
        },
    )
    return 1 if grown else 0


def _figures(name: str, args: argparse.Namespace, out: Output) -> tuple[Ours, ...]:
    """Our figures of a file, a run or a job."""
    if Path(name).is_file():
        return read_baseline(Path(name))
    if name.startswith(_JOB):
        return _figures_of_job(name.removeprefix(_JOB), args, out)
    if not set(name) <= set("0123456789abcdef"):
        raise BenchError(
            f"{name} is neither a file nor a run; give a file that --json wrote, a run's digits "
            "from `utvm history`, or job:DIGITS"
        )
    has_server = bool(args.server or os.environ.get("UTVM_SERVER"))
    with RunStore(runs_file()) as store:
        # The digits of a run and of a job look the same.
        if has_server and len(name) == KEY_DIGITS and not store.has(name):
            return _figures_of_job(name, args, out)
        kept = store.get(name)
    return figures_of_run(kept)


def _figures_of_job(key: str, args: argparse.Namespace, out: Output) -> tuple[Ours, ...]:
    with open_server(args, out) as server:
        from utvm_deploy.client.download import content

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
                change.before,
                change.now,
                "" if change.percent is None else f"{change.percent:+.1f} %",
                change.unit,
            )
            for change in found.changes
        ],
        title=f"{found.model} on {boards}",
    )
