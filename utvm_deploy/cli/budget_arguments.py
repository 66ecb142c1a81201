"""--ram-budget, --flash-budget and --cycle-budget: their parsers, for every verb that has them."""

from __future__ import annotations

import argparse
import re
from typing import Any

from utvm_deploy.cli.gate import size

_MULTIPLES = {"": 1, "k": 1_000, "m": 1_000_000}


def add_budgets(parser: Any) -> None:
    """The budgets of a compiled model."""
    parser.add_argument(
        "--ram-budget",
        metavar="BYTES",
        type=positive_size,
        help="the fastest plan whose arena, scratch included, has at most that many bytes (32K is "
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
