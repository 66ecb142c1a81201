"""The site of the documentation: each page has its place, and its Markdown becomes the site's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "site"))
import notebook_pages  # noqa: E402
import python_names  # noqa: E402
from command_line import pages as pages_of_verbs  # noqa: E402
from page_text import anchor, rewritten, with_whole_options, with_wide_lists  # noqa: E402

DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {
    "index.md",
    "all-pages.md",
}


def test_each_page_is_in_the_navigation_and_in_the_index() -> None:
    navigation = re.findall(r"- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert set(navigation) >= PAGES
    assert len(navigation) == len(set(navigation))
    assert _linked("all-pages.md") >= PAGES


def test_the_first_page_is_a_picture_six_lines_and_four_doors() -> None:
    text = (DOCS / "index.md").read_text()
    (picture,) = re.findall(r"!\[[^\]]+\]\((images/[\w-]+\.svg)\)", text)
    assert "prefers-color-scheme: dark" in (DOCS / picture).read_text()
    (code,) = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) == 6
    assert len(re.findall(r"^\| to .*\]\(", text, re.MULTILINE)) == 4
    assert _linked("index.md") < PAGES | {"all-pages.md"} and len(_linked("index.md")) == 6


def _linked(page: str) -> set[str]:
    return set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / page).read_text()))


def link(text: str, source: str = "docs/guides/ci.md") -> tuple[str, list[str]]:
    warned: list[str] = []
    places = {
        "docs/guides/ci.md": "guides/ci.md",
        "docs/reference/json.md": "reference/json.md",
        "SECURITY.md": "project/security.md",
    }
    page = places.get(source, "guides/ci.md")
    return rewritten(text, source, page, places, ROOT, warned.append), warned


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[a](../reference/json.md#x)", "[a](../reference/json.md#x)"),
        ("[a\nb](../../SECURITY.md)", "[a\nb](../project/security.md)"),
        ("[a](https://b.example) [c](#d)", "[a](https://b.example) [c](#d)"),
        ("[a](../../models/README.md)", "a (`models/README.md`)"),
        ("`[a](../../SECURITY.md)`", "`[a](../../SECURITY.md)`"),
        ("```\n[a](../../SECURITY.md)\n```\n", "```\n[a](../../SECURITY.md)\n```\n"),
        ("[`--json`](../reference/json.md)", "[`--json`](../reference/json.md)"),
    ],
)
def test_links(text: str, wanted: str) -> None:
    assert link(text) == (wanted, [])


def test_links_of_the_project_s_pages_and_links_to_nothing() -> None:
    assert link("[a](docs/guides/ci.md)", "SECURITY.md")[0] == "[a](../guides/ci.md)"
    assert link("[a](nosuch.md)")[1] == ["docs/guides/ci.md: no file for the link nosuch.md"]
    assert link("[a](../../../elsewhere.md)")[1]


def test_lists_inside_lists() -> None:
    text = "Text:\n1. one\n   * two\n     more\n\n   ```\n   x\n     y\n   ```\n2. three\n\nText\n"
    assert with_wide_lists(text) == (
        "Text:\n\n1. one\n    * two\n        more\n\n    ```\n    x\n      y\n    ```\n"
        "2. three\n\nText\n"
    )
    code = "```\n- a\n  - b\n```\n"
    assert with_wide_lists(code) == code


def test_text_beside_code_is_a_paragraph() -> None:
    text = "Text:\n```\nx\n```\nMore.\n\n1. one\n   ```\n   y\n   ```\n   more\n2. two\n"
    assert with_wide_lists(text) == (
        "Text:\n\n```\nx\n```\n\nMore.\n\n1. one\n\n    ```\n    y\n    ```\n\n    more\n2. two\n"
    )


def test_short_code_in_text_has_a_class_and_blocks_have_none() -> None:
    text = "<p><code>--board</code></p><pre><span></span><code>--board</code></pre>"
    assert with_whole_options(text) == text.replace("<p><code>", '<p><code class="short">')
    long = "<p><code>utvm verify digits.tflite --board mps2_an500</code></p>"
    assert with_whole_options(long) == long


def test_anchors_are_those_of_sites_that_show_repositories() -> None:
    assert anchor("`--input-rows`", "-") == "--input-rows"
    assert anchor("What the start-up code does, and where", "-") == (
        "what-the-start-up-code-does-and-where"
    )


@pytest.mark.tools
def test_each_verb_has_a_page_with_all_its_options() -> None:
    pages = pages_of_verbs()
    assert list(pages) == list(VERBS)
    for option in ("--board B", "--records R.jsonl", "--json"):
        assert f"| <code>{option}</code> |" in pages["tune"]
    assert "## utvm project flash" in pages["project"]
    assert "**Required.**" in pages["tune"]
    for verb, page in pages.items():
        _, usage, tables = page.split("```", 2)
        for option in re.findall(r"--[a-z-]+", usage):
            assert f"<code>{option}" in tables, (verb, option)


@pytest.mark.tools
def test_each_python_name_has_a_heading() -> None:
    pages = python_names.pages()
    headings = [one for page in pages.values() for one in re.findall("^::: (.*)$", page, re.M)]
    assert len(headings) == len(set(headings))
    named = {one.rpartition(".")[2] for one in headings}
    assert named >= set(utvm_deploy.__all__)
    assert {"QuantizedModel", "ProfileResult"} <= named


def test_notebooks_become_pages_with_their_results_and_are_in_the_navigation() -> None:
    pages = notebook_pages.pages(DOCS / "tutorials")
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert pages
    for name, text in pages.items():
        assert f"- tutorials/{name}.md" in navigation
        assert text.startswith("# ") and f"[{name}.ipynb]({name}.ipynb)" in text
        assert "```python\nimport " in text and "```text\n" in text
        html = re.findall(r'<div class="utvm-shown">.*?</div>', text, re.DOTALL)
        assert html and not any("\n\n" in one for one in html)


def test_a_bar_in_an_argument_needs_no_backslash() -> None:
    page = pages_of_verbs()["compile"]
    assert "<code>--plugin FILE.py&#124;NAME</code>" in page
