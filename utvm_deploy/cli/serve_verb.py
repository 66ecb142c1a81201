"""utvm serve: a server for a team, its boards and its CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.arguments import Verbs, add_verb, positive
from utvm_deploy.cli.output import Output

_PORT = 8086


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, common, "serve", "serve models, jobs and boards to a team", run)
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="where everything is kept; default: beside the runs",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=positive, default=_PORT, help="default: %(default)s")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a Dask scheduler; default: one inside"
    )
    parser.add_argument(
        "--certificates", metavar="DIR", type=Path, help="what --make-certificates wrote"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Serve until Ctrl-C."""
    from utvm_deploy.service.server import Settings, serve

    data = args.data or runs_file().parent / "service"
    out.line(f"http://{args.host}:{args.port}/ serves {data}; Ctrl-C ends it")
    serve(Settings(data, args.host, args.port, args.scheduler, args.certificates))
    return 0
