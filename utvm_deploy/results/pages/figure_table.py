"""The table of figures that all reports share: bars, a total below, and columns that say something.

``profiling``, ``comparing`` and ``tuning`` give lines and columns. The macro ``figures`` of
``templates/parts.html`` draws the table, which sorts by a click on a column's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from utvm_deploy.results.pages.chart import Bar


@dataclass(frozen=True)
class Line:
    """What a row is about, and its bars."""

    name: str  # an operator
    detail: str  # the kernel that computes it
    bars: tuple[Bar, ...]
    index: int | None = None  # of the layer
    why: str = ""  # this kernel was chosen
    mark: Bar | None = None  # a line across the bars
    are_beside: bool = False  # bars one below the other, not one over the other


@dataclass(frozen=True)
class Cell:
    """One value of a column."""

    text: str
    kind: str = ""  # a class of ``style.css``
    curve: str = ""  # the path of a small curve instead of a text


@dataclass(frozen=True)
class Column:
    """A value for each row, and one for all of them below."""

    head: str
    cells: tuple[Cell, ...]
    total: Cell = Cell("")
    is_number: bool = True
    # It is left out if it is empty, 0 in each row, or equal to a column before it.
    is_optional: bool = False


@dataclass(frozen=True)
class FigureTable:
    """What the macro draws."""

    label: str  # what a reader hears
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    has_index: bool
    head: str  # over the names
    total: str  # the name of the last row; empty for none
    words: tuple[tuple[str, str], ...] = ()  # and what they mean

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of all columns; those of numbers begin with ">"."""
        return (
            *((">layer",) if self.has_index else ()),
            self.head,
            "time",
            *(f"{'>' if one.is_number else ''}{one.head}" for one in self.columns),
        )

    @property
    def foot(self) -> tuple[Cell, ...]:
        """The row below all others; empty for none."""
        if not self.total:
            return ()
        before = (Cell(""),) if self.has_index else ()
        return (*before, Cell(self.total), Cell(""), *(one.total for one in self.columns))


def figure_table(
    label: str,
    lines: Sequence[Line],
    columns: Sequence[Column],
    head: str = "operator",
    total: str = "whole model",
) -> FigureTable:
    """The table, without the optional columns that say nothing."""
    has_index = any(line.index is not None for line in lines)
    shown = tuple(_telling(columns))
    return FigureTable(label, tuple(lines), shown, has_index, head, total if lines else "")


def column(
    head: str,
    texts: Sequence[str],
    total: str = "",
    *,
    is_number: bool = True,
    is_optional: bool = False,
) -> Column:
    """A column of plain texts."""
    return Column(head, tuple(map(Cell, texts)), Cell(total), is_number, is_optional)


def ratio_cell(value: float | None) -> Cell:
    """A ratio that is good from 1 on."""
    return Cell("") if value is None else Cell(f"{value:.2f}", "good" if value >= 1 else "bad")


def share(part: float, whole: float) -> str:
    """In percent; nothing of nothing."""
    return f"{100 * part / whole:.1f}" if whole else ""


def _telling(columns: Sequence[Column]) -> list[Column]:
    told: list[Column] = []
    for one in columns:
        if one.is_optional:
            says_nothing = all(cell.text in ("", "0") and not cell.curve for cell in one.cells)
            if says_nothing or any(one.cells == other.cells for other in told):
                continue
        told.append(one)
    return told
