"""The gate of profile and bench: its verdict."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import check_writable
from utvm_deploy.cli.output import Output
from utvm_deploy.results.comparing.gate import excesses, growths, ours_of, read_baseline

#: Without --fail-over: what a harmless change of the compiler may cost.
DEFAULT_ALLOWED_PERCENT = 3.0


def check_before(args: argparse.Namespace) -> None:
    """What is sure to fail after the measuring fails before it: the page's place, the baseline."""
    if args.html is not None:
        check_writable(args.html)
    if args.baseline is not None:
        read_baseline(args.baseline)
    elif args.fail_over is not None:
        raise UsageError("--fail-over says by how much more than --baseline; give that, too")


def judge(
    args: argparse.Namespace, out: Output, schema: str, result: Mapping[str, Any]
) -> dict[str, Any]:
    """The gate's part of the result, with what failed printed; empty if no gate was asked for."""
    allowed = DEFAULT_ALLOWED_PERCENT if args.fail_over is None else args.fail_over
    if args.baseline is None and args.max_ram is None and args.max_flash is None:
        return {}
    now = ours_of(result, schema)
    grown = []
    if args.baseline is not None:
        grown = growths(read_baseline(args.baseline), now, allowed)
    over = excesses(now, args.max_ram, args.max_flash)
    if grown:
        out.line(f"GREW by more than {allowed:g} % since {args.baseline}:")
    for item in (*grown, *over):
        out.line(f"  {item}")
    if over:
        out.line("OVER THE LIMIT")
    if not grown and not over:
        out.line("gate: nothing grew, nothing is over a limit")
    return {
        "gate": {
            "ok": not grown and not over,
            "fail_over_percent": allowed,
            "grown": [asdict(item) for item in grown],
            "over": [
                {
                    "model": item.model,
                    "memory": item.memory,
                    "bytes": item.used_bytes,
                    "limit": item.limit_bytes,
                }
                for item in over
            ],
        }
    }


def exit_code(gate: Mapping[str, Any]) -> int:
    """1 if the gate is shut."""
    return 0 if not gate or gate["gate"]["ok"] else 1
