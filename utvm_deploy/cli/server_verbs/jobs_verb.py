"""utvm jobs: list a server's jobs, look at one, cancel one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import file_digest
from utvm_deploy.cli.output import Output, when
from utvm_deploy.cli.server_arguments import facts, open_server

if TYPE_CHECKING:
    from utvm_deploy.service.client.facts import RemoteJob

_COLUMNS = ("job", "when", "verb", "model", "board", "state", "", "why")

#: What a server lists at a time.
_MOST_LISTED = 1000


def run(args: argparse.Namespace, out: Output) -> int:
    """A line for each job, the newest first."""
    if args.cancel and args.job:
        raise UsageError("give one job: either JOB, to look at it, or --cancel JOB")
    if args.log and not args.job:
        raise UsageError("--log shows what one job wrote; give its digits, too")
    if args.most > _MOST_LISTED:
        raise UsageError(f"-n {args.most}: a server lists {_MOST_LISTED:,} jobs at a time")
    if args.dry_run and args.cancel:
        out.line(f"would cancel job {args.cancel}")
        return 0
    with open_server(args, out) as server:
        if args.cancel:
            found = [server.cancel(args.cancel)]
        elif args.job:
            found = [server.job(args.job)]
        else:
            wanted = {"state": args.state, "board": args.board, "verb": args.of}
            found = server.jobs(args.most, model=_digest(args.model), **wanted)
        log = server.log(args.job) if args.log else ""
    if found:
        out.table(_COLUMNS, [_row(job) for job in found])
    else:
        is_filtered = args.model or args.state or args.board or args.of
        out.line("no such jobs" if is_filtered else "no jobs; `utvm submit` starts them")
    for job in found if args.job else ():
        for file in job.files:
            out.line(f"  {file.name} ({file.size:,} bytes)")
    if log:
        out.line(log)
    out.result("utvm.jobs/1", {"server": server.url, "jobs": [facts(job) for job in found]})
    return 0


def _row(job: RemoteJob) -> tuple[object, ...]:
    doing = f"{job.what} {job.done}/{job.total}" if job.total > 1 else job.what
    return (
        *(job.key, when(job.created), job.verb, ", ".join(job.models), job.board, job.state),
        *("" if job.has_ended else doing, job.reason),
    )


def _digest(model: str) -> str:
    return file_digest(Path(model)) if model and Path(model).is_file() else model
