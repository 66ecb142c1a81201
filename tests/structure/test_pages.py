"""The links of the pages lead somewhere, and the tree of docs is the one that was agreed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ROOMS = {"tutorials", "guides", "reference", "internals", "contributing"}
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)")


def anchors(page: Path) -> set[str]:
    """The names that a forge gives to the headings of a page."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    broken = []
    for name, anchor in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{name}#{anchor}")
    assert not broken


def test_the_rooms_of_docs() -> None:
    assert {
        path.relative_to(ROOT / "docs").parts[0] for path in (ROOT / "docs").rglob("*.md")
    } == ROOMS | {"index.md"}


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {index.parent / name for name, _ in _LINK.findall(index.read_text(encoding="utf-8"))}
    missing = set((ROOT / "docs").rglob("*.md")) - {index} - linked
    assert not missing, "docs/index.md has a line for each page"
