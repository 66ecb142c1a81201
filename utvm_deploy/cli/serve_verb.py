"""utvm serve: a server for a team, its boards and its CI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.arguments import Verbs, add_verb
from utvm_deploy.cli.output import Output
from utvm_deploy.client.settings import DEFAULT_PORT

_MOST_PORT = 65535


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
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help="default: %(default)s; 0 takes one that is free",
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a Dask scheduler; default: one inside"
    )
    parser.add_argument(
        "--certificates", metavar="DIR", type=Path, help="what --make-certificates wrote"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Serve until Ctrl-C."""
    from utvm_deploy.service.server import serve
    from utvm_deploy.service.settings import Settings

    data = args.data or runs_file().parent / "service"

    def told(url: str) -> None:
        out.line(f"{url} serves {data}; Ctrl-C ends it")
        sys.stdout.flush()  # who reads a pipe waits for this line

    serve(Settings(data, args.host, args.port, args.scheduler, args.certificates), told)
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number up to {_MOST_PORT}")
    return int(text)
