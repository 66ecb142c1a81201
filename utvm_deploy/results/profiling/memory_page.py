"""The memory of a model as one HTML page, and as an SVG file, from ``utvm memory --json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utvm_deploy.results.pages.memory_picture import memory_values, operators_of
from utvm_deploy.results.pages.render import render


def memory_html(result: Mapping[str, Any]) -> str:
    """The whole page; it loads nothing."""
    return render("memory.html", level=2, **memory_page_values(result))


def memory_page_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """What ``memory_body.html`` shows."""
    return {"found": result, "map": _map(result)}


def memory_svg(result: Mapping[str, Any]) -> str:
    """The arena over time as a picture that needs no style from outside."""
    return render("memory_picture.svg", found=result, map=_map(result))


def _map(result: Mapping[str, Any]) -> dict[str, Any]:
    return memory_values(result["uses"], result["arena_bytes"], operators_of(result["layers"]))
