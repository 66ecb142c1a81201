"""The options for budgets and pools: their parsers, for every verb that has them."""

from __future__ import annotations

import argparse
import re
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.cli.gate import size

_MULTIPLES = {"": 1, "k": 1_000, "m": 1_000_000}


def add_budgets(parser: Any) -> None:
    """The budgets of a compiled model."""
    parser.add_argument(
        "--ram-budget",
        metavar="BYTES",
        type=positive_size,
        help="the fastest plan whose arena and scratch have at most that many bytes (32K is "
        "32,768)",
    )
    parser.add_argument(
        "--flash-budget",
        metavar="BYTES",
        type=positive_size,
        help="the fastest level whose code and weights have at most that many bytes; the runtime "
        "is not counted",
    )
    parser.add_argument(
        "--cycle-budget",
        metavar="CYCLES",
        type=cycles,
        help="the smallest arena within that many cycles by the records (2M is 2,000,000)",
    )


def add_pools(parser: Any) -> None:
    """--pool; ``pools_of`` reads it."""
    parser.add_argument(
        "--pool",
        metavar="NAME=BYTES",
        type=pool,
        action="append",
        default=[],
        help="a memory region of the board, and the bytes of it that the model may use: dtcm=48K. "
        "It holds scratch, activations, and copies of the weights that are read most. May be given "
        "several times",
    )


def pools_of(args: argparse.Namespace) -> dict[str, int]:
    """Region -> bytes; UsageError for a region that was given twice."""
    found: dict[str, int] = {}
    for name, limit in args.pool:
        if name in found:
            raise UsageError(f"--pool {name} was given twice; give one limit for each region")
        found[name] = limit
    return found


def pool(text: str) -> tuple[str, int]:
    """``NAME=BYTES``, more than 0 bytes."""
    name, equals, limit = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pool, such as dtcm=48K")
    value = size(limit)
    if value == 0:
        raise argparse.ArgumentTypeError(f"a pool of 0 bytes holds nothing; leave {name} out")
    return name, value


def positive_size(text: str) -> int:
    """Bytes, more than 0."""
    value = size(text)
    if value == 0:
        raise argparse.ArgumentTypeError("a budget of 0 bytes holds no model")
    return value


def cycles(text: str) -> int:
    """Cycles, more than 0, with K or M behind for decimal multiples."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.lower())
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of cycles, such as 500000 or 2M"
        )
    return round(float(match[1]) * _MULTIPLES[match[2]])
