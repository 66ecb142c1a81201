"""Finds the prose in pages and in Python files: the paragraphs that a reader reads."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

#: Stands for code, a number or a name that was cut out of a sentence.
CODE = "CODE"
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s")
#: Columns that are aligned by blanks are a drawing, not a sentence.
_DRAWING = re.compile(r"\S {3,}\S")
_MARKER = re.compile(r"^\s*<!--.*-->\s*$")
_PRAGMA = re.compile(r"#:?\s*(noqa|type:|ruff:|mypy:|pragma|!|fmt:)")
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Paragraph:
    """Text that belongs together, the line that it starts in, and whether it has sentences."""

    line: int
    text: str
    has_sentences: bool = True


def of_page(text: str) -> Iterator[Paragraph]:
    """The paragraphs, list items, headings and table cells of a Markdown page."""
    lines: list[str] = []
    start = 0
    in_code = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if _FENCE.match(line):
            in_code = not in_code
        is_text = not (in_code or any(one.match(line) for one in (_FENCE, _MARKER)))
        is_text = is_text and not _DRAWING.search(line)
        is_block = line.lstrip().startswith("|") or _HEADING.match(line) is not None
        ends = not is_text or is_block or not line.strip() or _ITEM.match(line) is not None
        if ends and lines:
            yield Paragraph(start, _without_code(" ".join(lines)))
            lines = []
        if not is_text or not line.strip():
            continue
        if is_block:
            for cell in line.strip().strip("|").split(" | "):
                yield Paragraph(number, _without_code(cell), has_sentences=False)
        elif not (line.startswith("    ") and not lines):
            start = start if lines else number
            lines.append(_ITEM.sub("", line).strip())


def of_python(text: str) -> Iterator[Paragraph]:
    """The docstrings, comments and messages of a Python file."""
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _is_text(first.value):
                docstrings.add(first.value)
                yield from _of_docstring(first.value.lineno, ast.get_docstring(node) or "")
    yield from _comments(text)
    inside = {
        part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        if node not in docstrings and node not in inside and (message := _message(node)):
            yield Paragraph(getattr(node, "lineno", 0), _without_code(message))


def lines_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of tables and code blocks, with their numbers."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


def prose(path: Path) -> list[Paragraph]:
    """The paragraphs of a file."""
    text = path.read_text(encoding="utf-8")
    return list(of_python(text) if path.suffix == ".py" else of_page(text))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _of_docstring(line: int, text: str) -> Iterator[Paragraph]:
    for paragraph in of_page(text):
        yield Paragraph(line + paragraph.line - 1, paragraph.text, paragraph.has_sentences)


def _comments(text: str) -> Iterator[Paragraph]:
    """Comments in adjacent lines are one paragraph; one behind code is a paragraph alone."""
    found: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _PRAGMA.match(token.string):
            number, column = token.start
            words = token.string.lstrip("#:").strip()
            if token.line[:column].strip():
                yield Paragraph(number, _without_code(words))
            else:
                found.append((number, column, words))
    for _, group in groupby(enumerate(found), lambda item: (item[1][0] - item[0], item[1][1])):
        comments = [comment for _, comment in group]
        words = " ".join(words for _, _, words in comments)
        yield Paragraph(comments[0][0], _without_code(words))


def _message(node: ast.AST) -> str:
    """The text of a string that reads like a sentence, else ''."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else CODE for part in node.values
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        return ""
    words = text.split()
    plain = sum(1 for word in words if _WORD.fullmatch(word.strip(".,:;()'\"?!")))
    is_code = any(sign in text for sign in (";\n", "{\n", "#include", " = "))
    return text if len(words) >= 4 and 3 * plain >= 2 * len(words) and not is_code else ""


def _without_code(text: str) -> str:
    text = re.sub(r"``.+?``|`[^`]+`", CODE, text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"https?://\S+", CODE, text.replace("**", "").replace("*", ""))
