"""Options and texts of ``utvm quantize --sensitivity`` and ``--scheme mixed``."""

from __future__ import annotations

import argparse
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.cli.arguments import add_board, add_timing
from utvm_deploy.cli.budget_arguments import cycles, positive_size
from utvm_deploy.cli.output import Output
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.precision.facts import Budgets, LayerSensitivity, Mixed
from utvm_deploy.quality.precision.steps import DEFAULT_MAX_LOSS
from utvm_deploy.quality.quantizing.facts import INT8, INT16X8, MIN_MAX

MIXED = "mixed"


def add_precision(parser: argparse.ArgumentParser) -> None:
    """--sensitivity, --max-loss, --board and the budgets."""
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="also print the loss if one layer alone is quantized; with --board, also its time",
    )
    group = parser.add_argument_group("with --scheme mixed")
    group.add_argument(
        "--max-loss",
        metavar="X",
        type=_loss,
        help="the most that may be lost: percentage points of accuracy against the float model if "
        "CALIB has labels, else dB of SQNR against the int16x8 model; default: "
        f"{DEFAULT_MAX_LOSS:g}",
    )
    group.add_argument(
        "--ram-budget", metavar="BYTES", type=positive_size, help="RAM (32K is 32,768 bytes)"
    )
    group.add_argument("--flash-budget", metavar="BYTES", type=positive_size, help="flash")
    group.add_argument(
        "--cycle-budget", metavar="CYCLES", type=cycles, help="cycles (2M is 2,000,000)"
    )
    add_board(parser, needed=False)
    add_timing(parser)


def check_precision(args: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("max_loss", "ram_budget", "flash_budget", "cycle_budget")
        if getattr(args, name) is not None
    ]
    if given and args.scheme != MIXED:
        raise UsageError(f"{given[0]} goes with --scheme {MIXED}")
    if args.scheme == MIXED and (args.clipping != MIN_MAX or args.equalize):
        odd = "--equalize" if args.equalize else "--clipping"
        raise UsageError(f"--scheme mixed takes ranges and weights as they are; leave {odd} out")
    if budgets_of(args).are_set and args.board is None:
        raise UsageError("a budget is measured on a board; give --board, too")
    if args.board is not None and args.scheme != MIXED and not args.sensitivity:
        raise UsageError(
            f"a file of scheme {args.scheme} is the same for all boards; leave out --board, or add "
            f"--sensitivity or --scheme {MIXED}, which measure layers on it"
        )


def budgets_of(args: argparse.Namespace) -> Budgets:
    """The budgets of the command line."""
    return Budgets(args.ram_budget, args.flash_budget, args.cycle_budget)


def report_layers(rows: tuple[LayerSensitivity, ...], out: Output) -> None:
    """The table: what quantizing each layer alone costs."""
    has_points = any(row.points is not None for row in rows)
    has_prices = any(row.prices for row in rows)
    schemes = (INT8, INT16X8)
    heads = [f">{scheme} dB" for scheme in schemes]
    if has_points:
        heads += [f">{scheme} points" for scheme in schemes]
    if has_prices:
        heads += [f">{scheme} ticks" for scheme in schemes]
        heads += [f">{scheme} bytes" for scheme in schemes]
    out.line("quantizing one layer alone costs (SQNR of the outputs, the others float):")
    out.table(
        ["#", "operator", "output", *heads],
        [
            (str(row.index), row.kind, short_name(row.output), *_cells(row, has_points, has_prices))
            for row in rows
        ],
    )


def _cells(row: LayerSensitivity, has_points: bool, has_prices: bool) -> list[Any]:
    schemes = (INT8, INT16X8)
    cells: list[Any] = [
        None if row.sqnr_db[scheme] is None else f"{row.sqnr_db[scheme]:.1f}" for scheme in schemes
    ]
    if has_points:
        cells += [None if row.points is None else f"{row.points[scheme]:.1f}" for scheme in schemes]
    if has_prices:
        found = [row.prices.get(scheme) for scheme in schemes]
        cells += [None if one is None else one.ticks for one in found]
        cells += [None if one is None else one.weights_bytes for one in found]
    return cells


def report_mixed(mixed: Mixed, layers: int, max_loss: float, out: Output) -> None:
    """What was chosen, what it loses, and what it takes."""
    out.line(
        f"int16x8 for {len(mixed.wide)} of {layers} layers: it loses {mixed.loss:.2f} "
        f"{mixed.loss_unit}; int8 {mixed.losses[INT8]:.2f}, int16x8 {mixed.losses[INT16X8]:.2f}"
    )
    if not mixed.is_within:
        out.line(f"! no choice that was tried loses at most {max_loss:g} {mixed.loss_unit}")
    if mixed.price is not None:
        three = [mixed.price, *(mixed.prices[scheme] for scheme in (INT8, INT16X8))]
        for what, unit, taken in (
            ("time", mixed.price.unit, [price.ticks for price in three]),
            ("RAM", "bytes", [price.ram_bytes for price in three]),
            ("flash", "bytes", [price.flash_bytes for price in three]),
        ):
            own, int8, int16x8 = (f"{value:,}" for value in taken)
            out.line(f"  {what}: {own} {unit} ({INT8} {int8}, {INT16X8} {int16x8})")
    if mixed.note is not None:
        out.line(f"! {mixed.note}")


def _loss(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, such as 0.5") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not zero or more")
    return value
