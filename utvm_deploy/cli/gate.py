"""The gate's arguments and its verdict, shared by profile and bench."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import check_writable
from utvm_deploy.cli.output import Output
from utvm_deploy.results.comparing.gate import excesses, growths, ours_of, read_baseline

#: Without --fail-over: what a harmless change of the compiler may cost.
DEFAULT_ALLOWED_PERCENT = 3.0

_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}


def add_gate(parser: argparse.ArgumentParser) -> None:
    """--baseline, --fail-over, --max-ram and --max-flash."""
    group = parser.add_argument_group("gate: exit 1 if")
    group.add_argument(
        "--baseline",
        metavar="PREV.json",
        type=Path,
        help="a layer or the whole model takes more time than in this earlier --json result, or "
        "the image more RAM or flash",
    )
    group.add_argument(
        "--fail-over",
        metavar="P%",
        type=percent,
        help=f"what may exceed --baseline without failing; default {DEFAULT_ALLOWED_PERCENT:g}%%",
    )
    group.add_argument(
        "--max-ram", metavar="BYTES", type=size, help="a model takes more RAM (64K is 65,536)"
    )
    group.add_argument("--max-flash", metavar="BYTES", type=size, help="its image takes more flash")


def percent(text: str) -> float:
    """``3%`` or ``3``."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage, such as 3%") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not zero or more")
    return value


def size(text: str) -> int:
    """Bytes, with K or M behind for binary multiples."""
    match = re.fullmatch(r"(\d+)([km]?)i?b?", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 65536, 64K or 1M")
    return int(match[1]) * _UNITS[match[2]]


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
