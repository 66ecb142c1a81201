"""The Python and C blocks of the pages: where they are, and whether their names are real."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import utvm_deploy

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(utvm_deploy\.[\w.]+(?:\([^`]*\))?[\w.]*)`")
#: Functions that pass `**options` on to these.
_OPTIONS_OF = ("compile", "connect")


@dataclass(frozen=True)
class Snippet:
    """A block of a page.

    ``number`` counts the page's blocks of this language from 1, ``line`` is that of its fence.
    """

    page: str
    language: str
    number: int
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page} {self.language} {self.number}"


def snippets(language: str) -> list[Snippet]:
    """All blocks of a language, in the order of the pages."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        matches = [one for one in _FENCE.finditer(text) if one[2].lower() == language]
        for number, match in enumerate(matches, 1):
            name = str(page.relative_to(ROOT))
            line = text.count("\n", 0, match.start()) + 1
            found.append(Snippet(name, language, number, line, match[3]))
    return found


def expressions() -> list[tuple[str, str]]:
    """A page, and what a sentence of it says of `utvm_deploy`: a name, or a call."""
    return [
        (str(page.relative_to(ROOT)), found.replace("\n", " "))
        for page in PAGES
        for found in _INLINE.findall(page.read_text(encoding="utf-8"))
    ]


def wrong_names(code: str) -> list[str]:
    """What the code imports, reads or calls of utvm_deploy that is not there."""
    tree = ast.parse(code)
    aliases: dict[str, Any] = {"utvm_deploy": utvm_deploy}
    wrong = list(_wrong_imports(tree, aliases))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = _value(node.value, aliases)
            if base is not None and _member(base, node.attr) is None:
                wrong.append(ast.unparse(node))
        elif isinstance(node, ast.Call):
            function = _value(node.func, aliases)
            if callable(function):
                wrong += _wrong_arguments(function, node)
    return wrong


def _wrong_imports(tree: ast.AST, aliases: dict[str, Any]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("utvm_deploy"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                aliases[name.asname or name.name] = _member(module, name.name)
                if aliases[name.asname or name.name] is None:
                    yield f"from {node.module} import {name.name}"


def _value(node: ast.expr, aliases: dict[str, Any]) -> Any:
    """The object of utvm_deploy that a dotted name means, or None."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _value(node.value, aliases)
        return None if base is None else _member(base, node.attr)
    return None


def _member(base: Any, name: str) -> Any:
    if isinstance(base, ModuleType) and not hasattr(base, name):
        try:
            return importlib.import_module(f"{base.__name__}.{name}")
        except ImportError:
            return None
    return getattr(base, name, None)


def _wrong_arguments(function: Any, call: ast.Call) -> list[str]:
    if any(_is_open(one) for one in call.args):
        return []
    given = [word.arg for word in call.keywords]
    parameters = inspect.signature(function).parameters
    if {"options", "chosen"} & set(parameters):
        more = {name for one in _OPTIONS_OF for name in _parameters(getattr(utvm_deploy, one))}
        unknown = [name for name in given if name not in more | set(parameters)]
        given = [name for name in given if name in parameters]
        if unknown:
            return [f"{ast.unparse(call.func)}({', '.join(map(str, unknown))})"]
    try:
        values = {str(name): None for name in given if name}
        inspect.signature(function).bind(*call.args, **values)
    except TypeError as exc:
        return [f"{ast.unparse(call)}: {exc}"]
    return []


def _is_open(argument: ast.expr) -> bool:
    """Whether an argument stands for any others: `...`, or `*paths`."""
    return isinstance(argument, ast.Starred) or (
        isinstance(argument, ast.Constant) and argument.value is Ellipsis
    )


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)
