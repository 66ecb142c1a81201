"""utvm docs: the documentation, for people who have the package alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby

from utvm_deploy.cli.doc_pages import Page, Place, for_reading, named, pages, search
from utvm_deploy.cli.output import Output

#: A search shows this many lines of a page.
_MOST_LINES = 3


def run(args: argparse.Namespace, out: Output) -> int:
    """List all pages, print one, or search."""
    words: list[str] = [word for word in args.words if word.strip()]
    if not words:
        _list(list(pages().values()), out)
        out.line("`utvm docs PAGE` prints one; `utvm docs WORD` searches; `utvm docs index` begins")
        return 0
    meant = named(words[0]) if len(words) == 1 else []
    if len(meant) == 1:
        (page,) = meant
        text = for_reading(page)
        out.page(text)
        out.result("utvm.docs.page/1", {"page": page.name, "title": page.title, "text": text})
    elif meant:
        _list(meant, out)
    else:
        _show(search(words), out)
    return 0


def _list(found: Sequence[Page], out: Output) -> None:
    out.table(
        ["page", "title", "first sentence"],
        [(page.name, page.title, page.summary) for page in found],
    )
    out.result(
        "utvm.docs/1",
        {
            "pages": [
                {"page": page.name, "title": page.title, "summary": page.summary} for page in found
            ]
        },
    )


def _show(found: Sequence[Place], out: Output) -> None:
    for name, places in groupby(found, key=lambda place: place.page.name):
        first, *others = places
        out.line(f"{name}: {first.page.title}")
        for place in (first, *others[: _MOST_LINES - 1]):
            section = "" if place.is_heading else f"{place.section}: "
            out.line(f"  {place.line:>4}  {section}{place.text}")
        if len(others) >= _MOST_LINES:
            out.line(f"        and {len(others) + 1 - _MOST_LINES} more lines")
    out.result(
        "utvm.docs.search/1",
        {
            "found": [
                {
                    "page": place.page.name,
                    "line": place.line,
                    "section": place.section,
                    "text": place.text,
                }
                for place in found
            ]
        },
    )
