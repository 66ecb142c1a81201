"""Fills in a page's template. ``templates/base.html`` has the style and the script of all pages.

A page is one file: it loads nothing, and works without a network. Values are escaped.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any

from utvm_deploy import __version__
from utvm_deploy.base.readable import readable, short

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_JOINTS = re.compile(r"[_/]+(?=[^\W_])")


def render(template: str, **values: Any) -> str:
    """The page that ``templates/TEMPLATE`` gives with these values.

    Raises jinja2.UndefinedError if the template uses a value that is not given.
    """
    return _environment().get_template(template).render(version=__version__, **values)


def render_part(template: str, **values: Any) -> Markup:
    """A part of a page, for another template to take as it is."""
    from markupsafe import Markup

    return Markup(render(template, **values))


def render_stored(template: str, **values: Any) -> Markup:
    """A part of a page from a stored result; nothing if the result is not as it is today.

    Another version may have written it.
    """
    from jinja2 import UndefinedError
    from markupsafe import Markup

    try:
        return render_part(template, **values)
    except (UndefinedError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return Markup("")


@cache
def _environment() -> Environment:
    # Verbs that write no page need not load it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("utvm_deploy.results.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    made.filters |= {
        "number": number,
        "size": size,
        "duration": duration,
        "ago": ago,
        "moment": moment,
        "short": short,
        "breakable": breakable,
    }
    return made


def _shown(value: Any) -> Any:
    # Markup is a part of a page already.
    return readable(value) if type(value) is str else value


def breakable(text: str) -> Markup:
    """The text, of which a line may end behind "_" and "/", but not inside a word."""
    from markupsafe import Markup, escape

    return Markup(_JOINTS.sub(r"\g<0><wbr>", str(escape(readable(text)))))


def size(value: int | None) -> str:
    """Bytes with the unit that leaves few digits; nothing for None."""
    if value is None:
        return ""
    if value < 10_000:
        return f"{value:,} bytes"
    bits, unit = next(
        (bits, unit)
        for bits, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB"))
        if value < 1 << (bits + 10) or unit == "GiB"
    )
    return f"{value / (1 << bits):,.{1 if value % (1 << bits) else 0}f} {unit}"


def duration(seconds: float | None) -> str:
    """A time span as people say it: "45 s", "3 min 20 s", "2 h 5 min", "4 days"."""
    if seconds is None:
        return ""
    whole = max(round(seconds), 0)
    if whole < 1:
        return f"{max(seconds, 0):.1f} s"
    minutes, hours = whole // 60, whole // 3600
    if whole < 60:
        return f"{whole} s"
    if hours < 1:
        return f"{minutes} min {whole % 60} s" if whole % 60 else f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} days"


def ago(moment_s: float | None) -> str:
    """How long ago a moment was, in one unit; a moment is in seconds since 1970."""
    if moment_s is None:
        return ""
    whole = max(round(time.time() - moment_s), 0)
    for unit, length in (("day", 86_400), ("h", 3600), ("min", 60)):
        count = whole // length
        if count:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return f"{whole} s ago" if whole else "now"


def moment(moment_s: float | None) -> str:
    """Date and time in UTC, such as "2026-05-01 12:30:05 UTC"; nothing if there is none."""
    try:
        found = datetime.fromtimestamp(moment_s or 0.0, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return ""  # a clock was wrong
    return found.strftime("%Y-%m-%d %H:%M:%S UTC") if moment_s else ""


def number(value: float | None, digits: int = 0) -> str:
    """A number with commas; nothing for None."""
    return "" if value is None else f"{value:,.{digits}f}"
