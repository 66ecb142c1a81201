"""Makes a page of the server from its template."""

from __future__ import annotations

from typing import Any

from fastapi.responses import HTMLResponse

from utvm_deploy.results.pages.assets import assets
from utvm_deploy.results.pages.render import render


def page(template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    """The page that ``templates/service/TEMPLATE`` gives with these values."""
    text = render(f"service/{template}", asset=lambda name: assets()[name].path, **values)
    return HTMLResponse(text, status)


def error_page(status: int, sentence: str) -> HTMLResponse:
    """What a browser shows instead of a page."""
    title = "Not found" if status == 404 else "That did not work"
    return page("error.html", status, title=title, sentence=sentence)
