"""Pages: values are escaped, nothing is loaded from elsewhere, charts have the right geometry."""

from __future__ import annotations

import re
import time

import jinja2
import pytest

from utvm_deploy.results.pages.assets import assets
from utvm_deploy.results.pages.chart import bar, block, line, steps
from utvm_deploy.results.pages.render import (
    ago,
    duration,
    moment,
    number,
    render,
    render_stored,
    size,
)


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


def test_a_line_takes_the_whole_height() -> None:
    assert line([3, 1, 2], 100, 40) == [(0.0, 0.0), (50.0, 40.0), (100.0, 20.0)]
    assert line([5, 5], 100, 40) == [(0.0, 20.0), (100.0, 20.0)]
    assert line([7], 100, 40) == [(50.0, 20.0)]


def test_blocks_of_a_map_are_in_the_map_and_large_enough_to_be_seen() -> None:
    found = block((1, 2), (50, 100), (4, 200), "one", "x")
    assert (found.x, found.y, found.width, found.height) == (180.0, 100.0, 360.0, 100.0)
    assert block((0, 0), (0, 1), (1, 100_000), "one", "x").height == 2.0


def test_bytes_and_times_have_fitting_units() -> None:
    sizes = [None, 0, 9_999, 10_240, 1 << 20, 1_500_000, 3 << 30]
    assert list(map(size, sizes)) == [
        *("", "0 bytes", "9,999 bytes", "10 KiB", "1 MiB", "1.4 MiB", "3 GiB"),
    ]
    spans = [None, 0.2, 45, 200, 240, 7500, 7200, 500_000]
    assert list(map(duration, spans)) == [
        *("", "0.2 s", "45 s", "3 min 20 s", "4 min", "2 h 5 min", "2 h", "5 days"),
    ]
    now = time.time()
    # If another computer's clock is ahead, no time is below zero.
    assert [ago(None), ago(now + 50), ago(now - 3700), ago(now - 200_000)] == [
        *("", "now", "1 h ago", "2 days ago"),
    ]
    assert [moment(None), moment(1.5), moment(1e300)] == ["", "1970-01-01 00:00:01 UTC", ""]


def test_a_stored_result_of_another_form_shows_nothing() -> None:
    result = {"arena_bytes": 1, "weights_bytes": 2, "samples": 3, "format": "cmake", "path": "x"}
    assert "cmake" in render_stored("service/result_bundle.html", result=result)
    assert render_stored("service/result_bundle.html", result={}) == ""
    assert render_stored("service/result_bundle.html", result=result | {"samples": "many"}) == ""


def test_assets_have_the_names_of_their_content() -> None:
    paths = {name: one.path for name, one in assets().items()}
    assert re.fullmatch(r"/static/[0-9a-f]{16}/live\.js", paths["live.js"])
    assert len({one.digest for one in assets().values()}) == len(paths)
