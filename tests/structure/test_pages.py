"""Pages: values are escaped, nothing is loaded from elsewhere, charts have the right geometry."""

from __future__ import annotations

import re

import jinja2
import pytest

from utvm_deploy.pages.chart import bar, steps
from utvm_deploy.pages.render import number, render


def a_page(name: str) -> str:
    return render("tuning.html", title=name, settings=[])


def test_values_are_escaped_and_nothing_is_loaded() -> None:
    page = a_page("<script>alert(1)</script> & more")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(", page)
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="settings"):
        render("tuning.html", title="x")


def test_bars_and_curves() -> None:
    assert bar(25, 100, "one", "ours").percent == 25.0
    assert bar(None, 100, "one", "ours").percent == 0.0
    assert bar(3, 0, "one", "ours").percent == 0.0
    assert steps([(0, 1.0), (5, 0.5), (10, 0.25)], 100, 40, 1.0) == (
        "M0.0,0.0H50.0V20.0H100.0V30.0H100.0"
    )


def test_numbers() -> None:
    assert [number(None), number(1234567), number(1.25, 1)] == ["", "1,234,567", "1.2"]
