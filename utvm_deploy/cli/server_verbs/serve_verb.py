"""utvm serve: a server for a team, its boards and its CI."""

from __future__ import annotations

import argparse
import sys

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.output import Output
from utvm_deploy.service.cluster.addresses import check_listen
from utvm_deploy.service.cluster.certificates import TOKEN, make_certificates, read_certificates
from utvm_deploy.service.server.store.settings import Settings, Tls
from utvm_deploy.service.server.store.token_file import read_token

_LOOPBACK = "127.0.0.1"


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
    from utvm_deploy.service.server.server import serve

    token, tls = None, None
    if args.certificates is not None:
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
