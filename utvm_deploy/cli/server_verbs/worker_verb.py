"""utvm worker: offers this machine and its boards to a cluster."""

from __future__ import annotations

import argparse
import platform
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.process import is_dry_run
from utvm_deploy.cli.output import Output
from utvm_deploy.service.cluster.addresses import check_address, check_listen

if TYPE_CHECKING:
    from utvm_deploy.service.cluster.offers import Offer

_PATIENCE_S = 600


def run(args: argparse.Namespace, out: Output) -> int:
    """Offer the boards until Ctrl-C."""
    from utvm_deploy.service.cluster.offers import inventory
    from utvm_deploy.service.cluster.worker import WorkerSettings, run_worker

    if (args.address is None) == (args.listen is None):
        raise UsageError("give the ADDRESS of a scheduler, or --listen HOST to start one")
    if args.dashboard is not None and args.listen is None:
        raise UsageError("--dashboard belongs to --listen: the scheduler shows it")
    for option in ("name", "patience"):
        if args.listen is not None and getattr(args, option) is not None:
            raise UsageError(f"--{option} belongs to ADDRESS; leave it out with --listen")
    if args.address is not None:
        check_address(args.address, args.certificates)
    else:
        check_listen(args.listen, args.certificates)
    name = args.name or platform.node()
    found = inventory()
    out.table(
        ["board", ">jobs at a time", "what it is"],
        [(offer.board, offer.count, offer.kind) for offer in found.offers],
    )
    for board, reason in found.missing.items():
        out.line(f"{board} is not offered: {reason}")
    if not found.offers:
        out.line("no board is offered; this worker takes only jobs that need none")
    out.result(
        "utvm.worker/1",
        {
            "name": name,
            "scheduler": args.address,
            "offers": [asdict(offer) for offer in found.offers],
            "missing": dict(found.missing),
        },
    )
    if args.listen is not None:
        return _schedule(args, found.offers, out)
    settings = WorkerSettings(
        args.address, name, found.offers, args.certificates, args.patience or _PATIENCE_S
    )
    run_worker(settings, out.note)
    return 0


def _schedule(args: argparse.Namespace, offered: Sequence[Offer], out: Output) -> int:
    """A scheduler with a worker, until Ctrl-C."""
    from utvm_deploy.service.cluster.connection import open_cluster

    if is_dry_run():
        return 0
    with open_cluster(
        certificates=args.certificates,
        listen=args.listen,
        offered=offered,
        dashboard_port=args.dashboard,
    ) as client:
        out.note(f"the scheduler is {client.scheduler.address}; Ctrl-C ends it")
        threading.Event().wait()
    return 0
