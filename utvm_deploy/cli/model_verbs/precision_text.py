"""Texts of ``utvm quantize --sensitivity`` and ``--scheme mixed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.cli.output import Output
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.precision.facts import LayerSensitivity, Mixed
from utvm_deploy.quality.quantizing.facts import INT4, INT8, INT16X8


def report_layers(rows: tuple[LayerSensitivity, ...], out: Output) -> None:
    """The table: what quantizing each layer alone costs."""
    has_points = any(row.points is not None for row in rows)
    has_prices = any(row.prices for row in rows)
    schemes = _schemes(rows)
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
            (
                *(str(row.index), row.kind, short_name(row.output)),
                *_cells(row, schemes, has_points, has_prices),
            )
            for row in rows
        ],
    )


def _schemes(rows: tuple[LayerSensitivity, ...]) -> list[str]:
    """Those that a layer was tried in; int4 has a column only if there are weights."""
    return [one for one in (INT4, INT8, INT16X8) if any(one in row.sqnr_db for row in rows)]


def _cells(
    row: LayerSensitivity, schemes: Sequence[str], has_points: bool, has_prices: bool
) -> list[Any]:
    decibels = [row.sqnr_db.get(scheme) for scheme in schemes]
    cells: list[Any] = [None if one is None else f"{one:.1f}" for one in decibels]
    if has_points:
        points = [None if row.points is None else row.points.get(scheme) for scheme in schemes]
        cells += [None if one is None else f"{one:.1f}" for one in points]
    if has_prices:
        # Without weights, a layer of int4 is one of int8.
        found = [row.prices.get(scheme) if scheme in row.sqnr_db else None for scheme in schemes]
        cells += [None if one is None else one.ticks for one in found]
        cells += [None if one is None else one.weights_bytes for one in found]
    return cells


def report_mixed(mixed: Mixed, layers: int, max_loss: float, out: Output) -> None:
    """What was chosen, what it loses, and what it takes."""
    out.line(
        f"int16x8 for {len(mixed.wide)} and int4 for {len(mixed.narrow)} of {layers} layers: it "
        f"loses {mixed.loss:.2f} {mixed.loss_unit}; "
        + ", ".join(f"{scheme} {loss:.2f}" for scheme, loss in mixed.losses.items())
    )
    if not mixed.is_within:
        out.line(f"! no choice that was tried loses at most {max_loss:g} {mixed.loss_unit}")
    if mixed.price is not None:
        for what, unit, taken in (
            ("time", mixed.price.unit, "ticks"),
            ("RAM", "bytes", "ram_bytes"),
            ("flash", "bytes", "flash_bytes"),
        ):
            others = ", ".join(
                f"{scheme} {getattr(price, taken):,}" for scheme, price in mixed.prices.items()
            )
            out.line(f"  {what}: {getattr(mixed.price, taken):,} {unit} ({others})")
    if mixed.note is not None:
        out.line(f"! {mixed.note}")
