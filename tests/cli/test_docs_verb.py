"""utvm docs: lists, prints and searches the pages; each page that the code names is there."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli import doc_pages
from utvm_deploy.cli.doc_pages import for_reading, named, pages, search
from utvm_deploy.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "utvm_deploy"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["docs", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["docs", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_all_pages_are_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    files = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    listed = said(capsys)
    for file in files:
        assert f"\n{file.removesuffix('.md')} " in listed
    for page in pages().values():
        assert page.summary, page.name
        assert "](" not in page.summary + page.title


def test_a_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "first-model")
    assert page.startswith("# Your first model\n")
    assert "(`utvm docs guides/quantization`)" in page
    assert "](" not in page
    for name in ("tutorials/first-model", "docs/tutorials/first-model.md", "First-Model"):
        assert said(capsys, name) == page
    assert said(capsys, "SECURITY.md").startswith("# ")


def test_a_name_of_several_pages_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "boards").splitlines()
    assert [line.split()[0] for line in listed[1:]] == [
        *("guides/boards", "reference/boards", "contributing/boards"),
    ]
    assert len(named("tutorials")) == len(list((ROOT / "docs" / "tutorials").glob("*.md")))


def test_words_are_searched(capsys: pytest.CaptureFixture[str]) -> None:
    found = search(["STALE", "records"])
    assert found[0].page.name == "reference/records" and found[0].is_heading
    line = found[0].page.file.read_text("utf-8").splitlines()[found[0].line - 1]
    assert line == "## Stale records"
    assert "reference/records: Records\n" in said(capsys, "stale", "records")
    # Not side by side on any line, but on one page.
    assert search(["deadline", "arena"])


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(json.loads(said(capsys, "--json"))["pages"]) == len(pages())
    assert json.loads(said(capsys, "glossary", "--json"))["text"].startswith("# Glossary")
    place = json.loads(said(capsys, "tensor intrinsics", "--json"))["found"][0]
    assert set(place) == {"page", "line", "section", "text"}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("nosuch", "no page of the documentation has 'nosuch' (see utvm docs)"),
        ("quantizaton", "has 'quantizaton'; did you mean 'quantization'? (see utvm docs)"),
        ("../../etc/passwd", "has '../../etc/passwd' (see utvm docs)"),
        ("x" * 5000, "..."),
    ],
)
def test_a_word_that_is_nowhere(word: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, word)
    assert says in told and len(told) < 200


def test_an_installation_without_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doc_pages, "data_dir", lambda kind: tmp_path / kind)
    pages.cache_clear()
    try:
        assert "install utvm-deploy again" in refused(capsys, "first-model")
    finally:
        pages.cache_clear()


def test_code_in_a_page_stays_as_it_is() -> None:
    page = pages()["contributing/operators"]
    blocks = re.findall(r"^```.*?^```$", page.text, re.DOTALL | re.MULTILINE)
    assert blocks and all(block in for_reading(page) for block in blocks)


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    """The strings of modules that name a page; messages and help texts, but no docstrings."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[Path, str]]:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "docs" not in text and ".md" not in text:
            continue
        tree = ast.parse(text)
        documents = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in documents:
                continue
            if isinstance(node.value, str):
                yield path, node.value


def test_no_message_names_a_file_that_users_of_the_package_do_not_have() -> None:
    files = re.compile(r"\bdocs/[\w/-]+\.md|\b(SECURITY|ARCHITECTURE|CONTRIBUTING)\.md")
    ours = PACKAGE / "cli" / "doc_pages.py"
    assert [
        (path.name, text) for path, text in texts() if path != ours and files.search(text)
    ] == []


def test_the_pages_that_messages_name_are_there() -> None:
    count = 0
    for path, text in texts():
        for name in re.findall(r"\butvm docs ([a-z][\w/-]+)", text):
            assert len(named(name)) == 1, (path.name, text)
            count += 1
    assert count > 8


def test_a_search_without_result_raises() -> None:
    with pytest.raises(UtvmError, match="no page"):
        search(["no such phrase anywhere", "at all"])
