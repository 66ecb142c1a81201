"""utvm serve: a server for a team, its boards and its CI."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.arguments import Verbs, add_verb, positive
from utvm_deploy.cli.output import Output
from utvm_deploy.service.client.settings import DEFAULT_PORT

_LOOPBACK = "127.0.0.1"
_MOST_PORT = 65535
_KEEP_DAYS, _DISK_LIMIT = 90, 10 << 30
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
#: The database and one upload need some room.
_LEAST_DISK = 256 << 20


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, common, "serve", "serve models, jobs and boards to a team", run)
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder of models, jobs and files; default: `service` next to the runs (UTVM_RUNS)",
    )
    parser.add_argument(
        "--host",
        metavar="H",
        action="append",
        help=f"where to listen; default: {_LOOPBACK}, which only this computer reaches",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=_port,
        default=DEFAULT_PORT,
        help="where to listen; 0 takes a free port; default: %(default)s",
    )
    access = parser.add_argument_group("who may use it")
    access.add_argument(
        "--make-certificates",
        metavar="DIR",
        type=Path,
        help="do not serve: make certificates and a token for the names and addresses that --host "
        "gives",
    )
    access.add_argument(
        "--certificates",
        metavar="DIR",
        type=Path,
        help="what --make-certificates made: ask for its token and encrypt",
    )
    access.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="ask for the token in this file, not for the one of --certificates",
    )
    access.add_argument(
        "--allow-code",
        action="store_true",
        help="take uploads that are programs: .pt2 and .relax models, images for the board `host`; "
        "anyone who sends one can do all that you can (utvm docs security)",
    )
    cluster = parser.add_argument_group("workers")
    cluster.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="send jobs to this Dask scheduler; default: to a worker on this computer",
    )
    cluster.add_argument(
        "--listen",
        metavar="HOST[:PORT]",
        help="let other computers' `utvm worker` join here; default: nobody joins",
    )
    disk = parser.add_argument_group("disk")
    disk.add_argument(
        "--keep-days",
        metavar="N",
        type=positive,
        default=_KEEP_DAYS,
        help="remove jobs N days after they ended; default: %(default)s",
    )
    disk.add_argument(
        "--disk-limit",
        metavar="SIZE",
        type=_size,
        default=_DISK_LIMIT,
        help="the most that all data may take, such as 500M or 20G; the oldest jobs are removed to "
        "make room; default: 10G",
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Serve until Ctrl-C."""
    if args.make_certificates is not None:
        return _make_certificates(args, out)
    hosts = args.host or [_LOOPBACK]
    if len(hosts) > 1:
        raise UsageError("--host is given twice; a server listens at one (0.0.0.0 is all)")
    if args.scheduler is not None and args.listen is not None:
        raise UsageError("--listen is for the scheduler inside; leave it out with --scheduler")
    return _serve(args, hosts[0], out)


def _serve(args: argparse.Namespace, host: str, out: Output) -> int:
    from utvm_deploy.service.cluster.addresses import check_listen
    from utvm_deploy.service.server.server import serve
    from utvm_deploy.service.server.store.settings import Settings, Tls
    from utvm_deploy.service.server.store.token_file import read_token

    token, tls = None, None
    if args.certificates is not None:
        from utvm_deploy.service.cluster.certificates import TOKEN, read_certificates

        made = read_certificates(args.certificates)
        # Users may write their own token there, so it is checked like that of --token-file.
        token = read_token(args.token_file or args.certificates / TOKEN)
        tls = Tls(made.certificate, made.key)
    elif args.token_file is not None:
        token = read_token(args.token_file)
    if args.listen is not None:
        check_listen(args.listen, args.certificates)
    data = args.data or runs_file().parent / "service"
    settings = Settings(
        data=data,
        host=host,
        port=args.port,
        token=token,
        tls=tls,
        scheduler=args.scheduler,
        # On this computer a scheduler may be without.
        certificates=None if (args.scheduler or "").startswith("tcp:") else args.certificates,
        listen=args.listen,
        allow_code=args.allow_code,
        keep_days=args.keep_days,
        disk_bytes=args.disk_limit,
    )

    def told(url: str, workers_join: str | None) -> None:
        out.line(f"{url} serves {data}; Ctrl-C ends it")
        if workers_join is not None:
            keys = f" --certificates {args.certificates}" if args.certificates else ""
            out.line(f"others offer their boards by: utvm worker {workers_join}{keys}")
        out.result("utvm.serve/1", {"url": url, "data": data, "workers_join": workers_join})
        sys.stdout.flush()  # who reads a pipe waits for this line

    if not args.dry_run:
        serve(settings, told)
    return 0


def _make_certificates(args: argparse.Namespace, out: Output) -> int:
    from utvm_deploy.service.cluster.certificates import make_certificates

    folder, hosts = args.make_certificates, args.host or ["localhost", _LOOPBACK]
    if args.dry_run:
        return 0
    made = make_certificates(folder, hosts)
    out.line(f"wrote certificates for {', '.join(hosts)} and a token to {folder}")
    out.line(f"serve with them: utvm serve --host {hosts[0]} --certificates {folder}")
    out.line(f"users need {made.authority} and the token; workers need the whole folder")
    out.result(
        "utvm.certificates/1",
        {
            "authority": made.authority,
            "certificate": made.certificate,
            "key": made.key,
            "hosts": hosts,
        },
    )
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_PORT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; give a number up to {_MOST_PORT}"
        )
    return int(text)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; give one such as 500M or 20G")
    size = int(match[1]) << _UNITS[match[2].upper()]
    if size < _LEAST_DISK:
        raise argparse.ArgumentTypeError(f"{text} is too small; give {_LEAST_DISK >> 20}M or more")
    return size
