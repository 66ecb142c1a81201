"""What functions return, in Python: one line as ``repr``, rows, and the verb's JSON object.

How a notebook shows it, and how its picture is drawn, is the business of ``results/pages``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import singledispatch
from importlib import import_module
from typing import Any, Protocol

from utvm_deploy.base.errors import MissingTool

#: What draws the things that know no page. It loads with the first picture, in any process.
PICTURES = "utvm_deploy.results.pages.pictures"


class Headed(Protocol):
    """What says in a line what matters about it."""

    @property
    def headline(self) -> str:
        """The line, without the name of the class."""


def one_line(thing: Headed) -> str:
    """The ``repr`` of things that may be large."""
    return f"<{type(thing).__name__} {thing.headline}>"


@singledispatch
def picture(thing: object) -> str | None:
    """The thing as the text of an SVG file; None if it has no picture.

    The module PICTURES registers what draws them.
    """


class Tabled(ABC):
    """A thing with rows. A notebook shows its line, its picture and its rows."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """What matters about it, in one line."""

    @property
    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """The rows, each a value by the name of its column; all rows have the same columns."""

    @property
    def svg(self) -> str | None:
        """A picture as the text of an SVG file; None for a result that has none."""
        import_module(PICTURES)
        return picture(self)

    def to_pandas(self) -> Any:
        """``table`` as a ``pandas.DataFrame``. Raises MissingTool if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise MissingTool("pandas", "make a DataFrame", "pip install pandas") from error
        return pandas.DataFrame(self.table)

    __repr__ = one_line


class Result(Tabled):
    """What a function of ``utvm_deploy`` returns: a line, rows, and the verb's JSON object."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The object that the verb prints with ``--json``, of plain Python types."""


def plain_object(schema: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A verb's JSON object as a reader of JSON gets it: lists, texts and numbers."""
    found: dict[str, Any] = json.loads(json.dumps({"schema": schema, **data}, default=plain_value))
    return found


def picked(thing: object, *names: str) -> dict[str, Any]:
    """Some fields of a thing by their names, as its JSON object has them."""
    return {name: getattr(thing, name) for name in names}


def plain_value(value: Any) -> Any:
    """Types that JSON does not know: numpy scalars and tuples of paths, for example."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
