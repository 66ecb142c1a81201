"""utvm doctor: what is installed, what is missing, the command that fixes it."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.output import Output
from utvm_deploy.device.doctor import examine


def run(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if something that is needed is missing."""
    board = board_of(args) if args.board else None
    # Not as defaults of the options: a setting for the board on the desk is none for others.
    port, serial = args.port or os.environ.get("UTVM_PORT"), os.environ.get("UTVM_SERIAL")
    checks = examine(board, port=port, serial=args.serial or serial)
    missing = [check for check in checks if not check.ok]
    out.table(
        ["", "what", "found", "purpose", "to mend it"],
        [
            (
                "ok" if check.found else ("MISSING" if check.needed else "absent"),
                check.what,
                check.found,
                check.purpose,
                "" if check.found else check.fix,
            )
            for check in checks
        ],
    )
    if board and not missing:
        absent = ", ".join(f"{one.what} ({one.purpose})" for one in checks if not one.found)
        all_here = f"everything for {board.name} is here"
        out.line(
            f"what utvm needs for {board.name} is here; absent: {absent}" if absent else all_here
        )
    for check in missing:
        out.line(f"{check.what} is missing: {check.fix}")
    cautions = board.cautions if board else ()
    for caution in cautions:
        out.line(f"take care: {caution}")
    out.result(
        "utvm.doctor/1",
        {
            "ok": not missing,
            "board": board.name if board else None,
            "cautions": cautions,
            "checks": [{**asdict(check), "ok": check.ok} for check in checks],
        },
    )
    return 1 if missing else 0
