"""Fills in a page's template. ``templates/base.html`` has the style and the script of all pages.

A page is one file: it loads nothing, and works without a network. Values are escaped.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from utvm_deploy import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """The page that ``templates/TEMPLATE`` gives with these values.

    Raises jinja2.UndefinedError if the template uses a value that is not given.
    """
    return _environment().get_template(template).render(version=__version__, **values)


@cache
def _environment() -> Environment:
    # Verbs that write no page need not load it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("utvm_deploy.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["number"] = number
    return made


def number(value: float | None, digits: int = 0) -> str:
    """A number with commas; nothing for None."""
    return "" if value is None else f"{value:,.{digits}f}"
