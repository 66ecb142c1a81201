"""What both engines take for whole networks: a file of figures, and the tables of the page.

A row of docs/reference/network-figures.csv has what `utvm bench` said of a network on a board: the
figures of ours and of the fastest build of CMSIS-NN, the figure of CMSIS-NN with all channels of
the file where ours drops constant ones, the layer that gains least, and all layers below 1.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from layer import ROOT

sys.path.append(str(ROOT / "benchmarks" / "size"))
from figures import with_tables

FILE = ROOT / "docs" / "reference" / "network-figures.csv"
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"


@dataclass(frozen=True)
class Row:
    """A network on a board. Figures are modelled cycles."""

    board: str
    network: str
    layers: int
    ours: int
    theirs: int
    build: str
    core: float  # the ratio without the memories' waits
    theirs_of_file: int  # 0: ours drops no channels
    least: str
    least_ratio: float
    below_1: str

    @property
    def key(self) -> tuple[str, str]:
        """Board and network."""
        return self.board, self.network


def row_of(board: str, network: str, told: Mapping[str, Any]) -> Row:
    """The row of what `utvm bench --json` says of a model."""
    unit = told["figures"][0]
    # Layers that CMSIS-NN has no function for are our kernels in both engines.
    compared = [one for one in told["layers"] if one["their_kernel"] and one["ratio"]]
    compared.sort(key=lambda one: float(one["ratio"]))
    below = [f"{one['index']} {one['ratio']:.2f}" for one in compared if one["ratio"] < 1]
    whole = told["in_file"] or {}
    return Row(
        board,
        network,
        len(told["layers"]),
        told["ours"][unit],
        told["theirs"][unit],
        told["build"] or "",
        round(told["ratio_core"] or 0.0, 5),
        whole["theirs"][unit] if whole else 0,
        f"{compared[0]['index']} {compared[0]['kernel']}" if compared else "",
        round(compared[0]["ratio"], 5) if compared else 0.0,
        "; ".join(below),
    )


def table(rows: Iterable[Row]) -> Iterator[str]:
    """The lines of a board's table."""
    yield (
        "| network | layers | ours | CMSIS-NN | its build | ratio | core | all channels "
        "| its smallest ratio of a layer |"
    )
    yield "|---|--:|--:|--:|---|--:|--:|--:|---|"
    for row in rows:
        whole = f"{row.theirs_of_file / row.ours:.2f}" if row.theirs_of_file else ""
        least = f"{row.least_ratio:.2f}, `{row.least.partition(' ')[2]}`" if row.least else ""
        yield (
            f"| {row.network} | {row.layers} | {row.ours:,} | {row.theirs:,} | `{row.build}` | "
            f"{row.theirs / row.ours:.2f} | {row.core:.2f} | {whole} | {least} |"
        )


def known() -> list[Row]:
    """The rows of the file."""
    if not FILE.is_file():
        return []
    with FILE.open(encoding="utf-8", newline="") as lines:
        return [_parsed(one) for one in csv.DictReader(lines)]


def _parsed(cells: Mapping[str, str]) -> Row:
    made = {"int": int, "float": float, "str": str}
    return Row(**{one.name: made[str(one.type)](cells[one.name]) for one in fields(Row)})


def tables_of(rows: Sequence[Row]) -> Mapping[str, Iterable[str]]:
    """Mark of the page -> the lines of its table: one for each board."""
    boards = dict.fromkeys(row.board for row in rows)
    return {
        f"networks {name}": table([row for row in rows if row.board == name]) for name in boards
    }


def write(new: Sequence[Row]) -> None:
    """Put new rows into the file, and write the tables of the page."""
    rows = {row.key: row for row in (*known(), *new)}
    with FILE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, [one.name for one in fields(Row)], lineterminator="\n")
        lines.writeheader()
        lines.writerows(map(asdict, rows.values()))
    text = with_tables(PAGE.read_text(encoding="utf-8"), tables_of(list(rows.values())))
    PAGE.write_text(text, encoding="utf-8")
