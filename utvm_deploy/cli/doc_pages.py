"""The pages of the documentation that come with the package: their names, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.toml_table import did_you_mean, shown

#: The pages that lead to all others.
FIRST_PAGES = ("index", "all-pages")
#: The folders of pages, in the order in which people need them.
FOLDERS = ("tutorials", "guides", "reference", "internals", "contributing")
#: Pages next to the folder of pages, in a checkout and in the package.
PROJECT_FILES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "PROTOCOL.md", "SECURITY.md")
_FENCE = "```"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", re.DOTALL)
#: Where a sentence ends: not within "0.3".
_SENTENCE = re.compile(r"(?<=[\w)`*\]][.:])\s+(?=[A-Z`*]|utvm\b)")


@dataclass(frozen=True)
class Page:
    """A page: its name as `utvm docs` takes it, and its Markdown."""

    name: str
    file: Path
    text: str

    @property
    def title(self) -> str:
        """Its first heading."""
        found = re.search(r"^# (.+)$", self.text, re.MULTILINE)
        return _plain(found[1]) if found else self.name

    @property
    def summary(self) -> str:
        """Its first sentence, without links."""
        for block in re.split(r"\n\s*\n", self.text):
            first = block.strip()
            if first and not first.startswith(("#", "|", "!", "<", "-", _FENCE)):
                return _SENTENCE.split(_plain(first))[0].rstrip(":")
        return ""


@dataclass(frozen=True)
class Place:
    """A line of a page with a word that was searched for, and the heading that it stands under."""

    page: Page
    line: int
    section: str
    text: str
    is_heading: bool


@cache
def pages() -> Mapping[str, Page]:
    """All pages by name: ``guides/tuning``, ``security``. Raises UtvmError if they are missing."""
    folder = data_dir("docs")
    files = {name: folder / f"{name}.md" for name in FIRST_PAGES}
    for below in FOLDERS:
        found = sorted((folder / below).glob("*.md"))
        files |= {f"{below}/{file.stem}": file for file in found}
    files |= {Path(name).stem.lower(): folder.parent / name for name in PROJECT_FILES}
    try:
        return {name: Page(name, file, file.read_text("utf-8")) for name, file in files.items()}
    except FileNotFoundError as error:
        raise UtvmError(
            f"the page {error.filename} is missing from this installation; install utvm-deploy "
            "again"
        ) from error


def named(word: str) -> list[Page]:
    """The pages that a name means: several if folders have pages of one name; a folder's pages.

    ``docs/guides/tuning.md``, ``guides/tuning`` and ``tuning`` name the same page.
    """
    name = word.lower().removesuffix(".md").removeprefix("docs/").rstrip("/")
    if name in pages():
        return [pages()[name]]
    return [page for page in pages().values() if name in page.name.split("/")]


def search(words: Sequence[str]) -> list[Place]:
    """The lines with the phrase that the words are; if there are none, pages that have all words.

    Pages with a heading among these lines come first. Capital letters do not matter. Raises
    UtvmError, with the nearest page, if nothing is found.
    """
    phrase = " ".join(words)
    found = _lines_with([phrase])
    if not found and len(words) > 1:
        having = [page for page in pages().values() if all(_has(page.text, word) for word in words)]
        found = [place for place in _lines_with(words) if place.page in having]
    if not found:
        names = {one for page in pages().values() for one in (page.name, page.file.stem)}
        hint = did_you_mean(phrase, names)
        raise UtvmError(f"no page of the documentation has {shown(phrase)}{hint} (see utvm docs)")
    headed = {place.page.name for place in found if place.is_heading}
    return sorted(found, key=lambda place: place.page.name not in headed)


def for_reading(page: Page) -> str:
    """The page's Markdown with the commands that show other pages in place of links to them."""

    def told(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        text = " ".join(text.split())
        if picture:
            return f"(picture: {text})"
        if "://" in target or target.startswith("#"):
            return f"{text} ({target})" if "://" in target else text
        path = (page.file.parent / target.partition("#")[0]).resolve()
        name = next((one.name for one in pages().values() if one.file.resolve() == path), None)
        return f"{text} (`utvm docs {name}`)" if name else text

    # Code blocks stay as they are.
    parts = re.split(rf"(^{_FENCE}.*?^{_FENCE}$)", page.text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith(_FENCE) else _LINK.sub(told, part) for part in parts)


def _lines_with(words: Sequence[str]) -> list[Place]:
    found = []
    for page in pages().values():
        section, in_code = page.title, False
        for number, line in enumerate(page.text.splitlines(), 1):
            in_code ^= line.startswith(_FENCE)
            is_heading = line.startswith("#") and not in_code
            if is_heading:
                section = _plain(line.lstrip("# "))
            if any(_has(line, word) for word in words):
                found.append(Place(page, number, section, line.strip(), is_heading))
    return found


def _has(text: str, word: str) -> bool:
    return word.lower() in text.lower()


def _plain(text: str) -> str:
    return " ".join(_LINK.sub(r"\2", text).split())
