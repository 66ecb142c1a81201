"""Texts of ``utvm quantize --sensitivity`` and ``--scheme mixed``."""

from __future__ import annotations

from typing import Any

from utvm_deploy.cli.output import Output
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.precision.facts import LayerSensitivity, Mixed
from utvm_deploy.quality.quantizing.facts import INT8, INT16X8


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
