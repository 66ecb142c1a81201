"""utvm fetch: download what a job made."""

from __future__ import annotations

import argparse

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.server_arguments import fetched, open_server


def run(args: argparse.Namespace, out: Output) -> int:
    """Each file is written whole, and its SHA-256 is checked."""
    with open_server(args, out) as server:
        job = server.job(args.job)
        names = [file.name for file in job.files]
        absent = [name for name in args.files if name not in names]
        if absent:
            raise UsageError(
                f"job {job.key} has no file {absent[0]}; it has {', '.join(names) or 'none'}"
            )
        if not names:
            raise UtvmError(f"job {job.key} has no files; it is {job.state}")
        wanted = [file for file in job.files if not args.files or file.name in args.files]
        if args.dry_run:
            out.line(f"would write {', '.join(file.name for file in wanted)} to {args.output}")
            return 0
        written = fetched(server, job, wanted, args.output, out)
    out.result(
        "utvm.fetch/1",
        {
            "job": job.key,
            "state": job.state,
            "files": [
                {"path": path, "sha256": file.sha256, "bytes": file.size}
                for path, file in zip(written, wanted, strict=True)
            ],
        },
    )
    return 0
