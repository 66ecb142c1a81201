"""The page that says where things are names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing" / "where.md"
ROWS = re.findall(r"^\| ([^|]+\?) \| `([^`]+)` \| `([^`]+)` \|$", PAGE.read_text(), re.MULTILINE)


def names_in(body: list[ast.stmt], start: str = "") -> set[str]:
    """The functions, classes, methods and constants of a module."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.add(f"{start}{node.name}")
        elif isinstance(node, ast.ClassDef):
            found |= {node.name} | names_in(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def test_each_line_of_the_table_is_read() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 1 >= 15


@pytest.mark.parametrize(("question", "module", "name"), ROWS)
def test_what_answers_is_there(question: str, module: str, name: str) -> None:
    path = ROOT / "utvm_deploy" / module
    assert path.is_file(), question
    assert name in names_in(ast.parse(path.read_text()).body), question
