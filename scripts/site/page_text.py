"""The pages' Markdown as Python-Markdown takes it: links, lists, and the anchors of headings.

The pages are written for every reader of Markdown: links lead to files of the repository, and a
list inside a list is indented by what its marker takes. In the site a link leads to a page or is
the file's name, and such a list is indented by four spaces.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path

_FENCE = re.compile(r"^ *(```|~~~)")
_MARKER = re.compile(r"^ *([-*+]|\d+[.)]) +")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
#: Code in text; that of blocks is behind an empty span.
_SHORT_CODE = re.compile(r"(?<!<span></span>)(?<!<pre>)<code>([^<\n]{1,24})</code>")


def rewritten(
    text: str,
    source: str,
    page: str,
    pages: Mapping[str, str],
    root: Path,
    warn: Callable[[str], None],
) -> str:
    """The text with links that lead to pages of the site.

    ``source`` is the page's file in the repository and ``page`` its place in the site; ``pages``
    has the places of all files that are pages. A link to another file becomes the file's name; one
    to no file is told to ``warn``.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path or target.startswith("mailto:"):
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if file in pages:
            place = posixpath.relpath(pages[file], posixpath.dirname(page) or ".")
            return f"[{words}]({place}{'#' + anchor if anchor else ''})"
        if file.startswith("../") or not (root / file).exists():
            warn(f"{source}: no file for the link {target}")
        name = f"`{file}`"
        return words if words == name else f"{words} ({name})"

    # Links are in no code, and the words of a link may be code.
    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    hidden = _LINK.sub(link, _CODE.sub(keep, text))
    return re.sub("\0(\\d+)\0", lambda number: kept[int(number[1])], hidden)


def with_wide_lists(text: str) -> str:
    """The text with four spaces for each list that a line is in, and blank lines around blocks.

    Lists begin after a blank line. Code has one before and after it, or what follows is not a
    paragraph.
    """
    lines: list[str] = []
    #: The columns at which the contents of the open lists begin.
    columns: list[int] = []
    fence = ""
    ended = False
    for line in text.splitlines():
        column = len(line) - len(line.lstrip(" "))
        begins = _FENCE.match(line)
        if fence:
            if line.strip() == fence:
                fence, ended = "", True
            lines.append(_moved(line, columns))
            continue
        marker = _MARKER.match(line)
        if ended and line.strip() and not marker:
            lines.append("")
        ended = False
        before = lines[-1].strip() if lines else ""
        was_in_list = bool(columns) or _in_list(lines)
        if line.strip() and (marker or begins or not before or line.startswith(("#", "|"))):
            while columns and column < columns[-1]:
                columns.pop()
        if begins:
            fence = begins[1]
            if before:
                lines.append("")
        if marker:
            if before and not was_in_list:
                lines.append("")
            lines.append(_moved(line, columns))
            columns.append(len(marker[0]))
        else:
            lines.append(_moved(line, columns))
    return "\n".join(lines) + "\n"


def _in_list(lines: list[str]) -> bool:
    """Whether the paragraph that ends here belongs to an item of a list."""
    for line in reversed(lines):
        if _MARKER.match(line):
            return True
        if not line.strip():
            return False
    return False


def _moved(line: str, columns: list[int]) -> str:
    column = len(line) - len(line.lstrip(" "))
    if not columns or not line.strip() or column == 0:
        return line
    return "    " * len(columns) + " " * max(column - columns[-1], 0) + line.lstrip(" ")


def anchor(heading: str, separator: str) -> str:
    """A heading's anchor, as the sites make it that show repositories."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", separator)


def with_whole_options(page: str) -> str:
    """The HTML with a class for short code in text, so that it stays on one line."""
    return _SHORT_CODE.sub(r'<code class="short">\1</code>', page)
