"""How results look in a notebook: a line, a picture and a table."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.readable import short
from utvm_deploy.base.results import Tabled
from utvm_deploy.results.pages.render import render

#: Rows of a table that a notebook shows; ``table`` and ``to_pandas`` have all of them.
MOST_ROWS = 40
#: Longer texts of a cell are cut in the middle: the figures next to long names stay in sight.
MOST_LETTERS = 40


def register() -> None:
    """Let the notebook that this process runs, if any, show results as pages.

    A notebook runs IPython before it imports anything, so nobody has to import IPython for it.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(Tabled, html_of)


def html_of(thing: Tabled) -> str:
    """The part of a notebook's page that shows a result."""
    return notebook_html(thing.headline, thing.table, thing.svg)


def notebook_html(headline: str, rows: Sequence[Mapping[str, Any]], svg: str | None = None) -> str:
    """A part of a notebook's page: a line, a picture and a table. It has no script.

    The table has the first rows, and no column that is empty in them. Where a text is cut, the
    cell's title has the whole.
    """
    shown = rows[:MOST_ROWS]
    heads = [head for head in rows[0] if any(_cell(row[head]) for row in shown)] if rows else []
    # As an image: the styles inside an SVG element would hold for the whole notebook.
    picture = None if svg is None else base64.b64encode(svg.encode()).decode()
    return render(
        "notebook.html",
        headline=headline,
        picture=picture,
        heads=[
            (head.replace("_", " "), any(_is_number(row[head]) for row in rows)) for head in heads
        ],
        rows=[[_cut(_cell(row[head])) for head in heads] for row in shown],
        left_out=max(len(rows) - MOST_ROWS, 0),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return " x ".join(map(str, value))
    return str(value)


def _cut(text: str) -> tuple[str, str]:
    """A text without its middle if it is long, and the whole then."""
    cut = short(text, MOST_LETTERS)
    return cut, text if cut != text else ""
