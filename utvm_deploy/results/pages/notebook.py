"""How results look in Python: one line as ``repr``, a table and a picture in a notebook."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.errors import MissingTool
from utvm_deploy.results.pages.render import render, short

#: Rows of a table that a notebook shows; ``table`` and ``to_pandas`` have all of them.
MOST_ROWS = 40
#: Longer texts of a cell are cut in the middle: the figures next to long names stay in sight.
MOST_LETTERS = 40

Row = Mapping[str, Any]


class Shown:
    """A thing that may be large, and whose ``repr`` is one line all the same."""

    @property
    def headline(self) -> str:
        """What matters about it, in one line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"


class Tabled(Shown):
    """A thing with a table, which a notebook shows below the line."""

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows, each a value by the name of its column; all rows have the same columns."""
        raise NotImplementedError

    @property
    def svg(self) -> str | None:
        """A picture as the text of an SVG file; None for a result that has none."""
        return None

    def to_pandas(self) -> Any:
        """``table`` as a ``pandas.DataFrame``. Raises MissingTool if pandas is not installed."""
        return data_frame(self.table)

    def _repr_html_(self) -> str:
        return notebook_html(self.headline, self.table, self.svg)


class Result(Tabled, ABC):
    """What a function of ``utvm_deploy`` returns: a line, a table, and the verb's JSON object."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The object that the verb prints with ``--json``, of plain Python types."""


def data_frame(rows: Sequence[Row]) -> Any:
    """Rows as a ``pandas.DataFrame``. Raises MissingTool if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingTool("pandas", "make a DataFrame", "pip install pandas") from error
    return pandas.DataFrame(list(rows))


def plain_object(schema: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A verb's JSON object as a reader of JSON gets it: lists, texts and numbers."""
    found: dict[str, Any] = json.loads(json.dumps({"schema": schema, **data}, default=plain_value))
    return found


def plain_value(value: Any) -> Any:
    """Types that JSON does not know: numpy scalars and tuples of paths, for example."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def notebook_html(headline: str, rows: Sequence[Row], svg: str | None = None) -> str:
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
