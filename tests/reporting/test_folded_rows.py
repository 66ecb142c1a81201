"""Rows of layers are one line each; what more there is to say opens, and is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.results.pages.render import breakable
from utvm_deploy.results.profiling.page import profile_html
from utvm_deploy.results.profiling.summary import words_in

LAYERS = 30
WHY = "DSP assembly, 3 pixels x 2 channels in registers, rows of 16 channels widened; by a record"


def a_profile() -> dict[str, Any]:
    """What `utvm profile --json` prints of a model of many layers."""

    def layer(index: int) -> dict[str, Any]:
        return {
            "index": index,
            "operator": "DEPTHWISE_CONV_2D",
            "kernel": f"m_depthwise_3x3_s2x2_p0x0_48x48_24x24_{index}_dsp",
            "why": WHY,
            "ticks": 489_476,
            "ticks_per_mac": 1.5,
            "figures": {"cycles": 489_476, "core": 400_000},
            "macs": 82_944,
            "bound": {"core": 200_000, "memory": 248_832, "limit": "multiply"},
            "strips": 8 if index == 0 else 0,
        }

    return {
        "model": "m",
        "board": "b",
        "is_modelled": True,
        "tick_unit": "cycles",
        "ticks": 489_476 * LAYERS,
        "ticks_per_second": 216_000_000,
        "seconds": 0.07,
        "figures": {"cycles": 489_476 * LAYERS, "core": 400_000 * LAYERS},
        "macs": 82_944 * LAYERS,
        "ram_bytes": 2,
        "arena_bytes": 1,
        "flash_bytes": 4,
        "weights_bytes": 3,
        "layers": [layer(index) for index in range(LAYERS)],
    }


def test_each_layer_is_folded_and_its_bound_is_marked() -> None:
    page = profile_html(a_profile())
    assert page.count("<summary>DEPTHWISE_<wbr>CONV_<wbr>2D") == LAYERS
    assert page.count(WHY) == LAYERS
    assert page.count('<path class="mark three"') == LAYERS
    assert page.count(", bound: 248,832") == LAYERS
    assert "RAM of the image: 2 bytes" in page


def test_only_words_that_are_shown_are_explained() -> None:
    page = profile_html(a_profile())
    for word in ("core", "bound", "x bound", "by a record", "strips"):
        assert page.count(f"<dt>{word}</dt>") == 1
    assert "<dt>pessimistic</dt>" not in page
    assert [word for word, _ in words_in(["layer", ">rich"], ["by a nearest record"])] == [
        *("rich", "by a nearest record")
    ]
    assert words_in(["layer"], ["integers only"]) == ()


def test_names_are_broken_between_words_and_escaped() -> None:
    assert breakable("a_b/c__<d>") == "a_<wbr>b/<wbr>c__&lt;d&gt;"


@pytest.mark.tools
def test_rows_are_a_line_on_a_phone_and_open_by_the_keyboard_and_on_paper(
    tmp_path: Path, browser: Any
) -> None:
    from chromium import PALE_TEXTS, look_as
    from selenium.webdriver.common.keys import Keys

    page = tmp_path / "profile.html"
    page.write_text(profile_html(a_profile()))
    browser.get(page.as_uri())
    for width in (390, 1200):
        look_as(browser, width, "dark")
        assert browser.execute_script(PALE_TEXTS) == []
        rows = browser.execute_script(ROWS)
        assert len(rows) == LAYERS
        # Layer 0 names its strips.
        assert all(height <= 40 for height, _ in rows[1:])
        assert all(right <= 0 for _, right in rows), "the cycles are out of sight"
    assert browser.execute_script(OPEN) == 0
    browser.find_elements("css selector", "td summary")[3].send_keys(Keys.ENTER)
    assert browser.execute_script(OPEN) == 1
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script(OPEN) == LAYERS


#: The height of each row, and how far its cycles are beyond the edge of the table's region.
ROWS = """
return [...document.querySelectorAll("tbody tr")].map((row) =>
  [row.getBoundingClientRect().height, row.cells[3].getBoundingClientRect().right -
    row.closest(".scroll").getBoundingClientRect().right]);
"""
OPEN = "return [...document.querySelectorAll('td .more')].filter((e) => e.checkVisibility()).length"
