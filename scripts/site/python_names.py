"""The pages of the Python names: headings that mkdocstrings fills from the docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import utvm_deploy

ABOUT = {
    "functions": "Each of these is a name of `utvm_deploy`. Every expected error is a `UtvmError`, "
    "and its text is one sentence.",
    "classes": "Boards, devices and compiled models. The functions make them.",
    "results": "What the functions return.",
    "modules": "Modules of `utvm_deploy`, each loaded on first use.",
}


def pages() -> dict[str, str]:
    """The Markdown of each page, by its name. Each name of ``utvm_deploy.__all__`` is on one."""
    named = {name: getattr(utvm_deploy, name) for name in utvm_deploy.__all__}
    modules = [one for one in named.values() if inspect.ismodule(one)]
    classes = [one for one in named.values() if inspect.isclass(one)]
    functions = [one for one in named.values() if inspect.isfunction(one)]
    results = {path(one): one for function in functions for one in returned(function)}
    known = set(map(path, classes))
    return {
        "functions": _page("functions", map(path, functions)),
        "classes": _page("classes", map(path, classes)),
        "results": _page("results", (one for one in results if one not in known)),
        "modules": _page("modules", (one.__name__ for one in modules)),
    }


def path(named: Any) -> str:
    """Where a class or a function is defined."""
    return f"{named.__module__}.{named.__qualname__}"


def returned(function: Any) -> Iterator[type]:
    """The classes of this package that a function says it returns."""
    module = inspect.getmodule(function)
    assert module is not None
    annotation = str(inspect.signature(function).return_annotation)
    for name in re.findall(r"[A-Z]\w+", annotation):
        found = getattr(module, name, None) or _imported_for_types(module, name)
        if inspect.isclass(found) and found.__module__.startswith("utvm_deploy."):
            yield found


def _imported_for_types(module: ModuleType, name: str) -> Any:
    """A name that a module imports only where types are checked."""
    line = rf"^ *from (utvm_deploy[\w.]*) import [^\n]*\b{name}\b"
    found = re.search(line, inspect.getsource(module), re.MULTILINE)
    return getattr(importlib.import_module(found[1]), name) if found else None


def _page(name: str, paths: Iterable[str]) -> str:
    headings = "\n".join(f"::: {one}\n" for one in paths)
    return f"# {name.capitalize()}\n\n{ABOUT[name]}\n\n{headings}"
