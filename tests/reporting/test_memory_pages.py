"""The page and the picture of a model's memory: names, legend, and how the page is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.results.pages.memory_picture import memory_values
from utvm_deploy.results.profiling.memory_page import memory_html, memory_svg

LONG = "/".join(f"block_{number}" for number in range(30))


def a_result() -> dict[str, Any]:
    """What `utvm memory --json` prints of a model with two layers."""

    def use(kind: str, name: str, offset: int, bytes_: int, first: int, last: int) -> Any:
        return {
            "kind": kind,
            "name": name,
            "offset": offset,
            "bytes": bytes_,
            "first": first,
            "last": last,
            "layer": first,
            "operator": "CONV_2D",
            "is_at_peak": True,
        }

    return {
        "model": "small",
        "board": "host",
        "layers": [{}, {}],
        "arena_bytes": 96,
        "limits": {"ram_bytes": 1024, "flash_bytes": 4096},
        "peak": {"layers": [0], "live_bytes": 96, "lower": []},
        "uses": [
            use("input", "x", 0, 32, 0, 0),
            use("scratch", "scratch 0.0 of CONV_2D", 32, 32, 0, 0),
            use("activation", LONG, 64, 32, 0, 1),
            use("output", "y", 0, 32, 1, 1),
        ],
        "pools": [],
        "stack": None,
        "image": None,
        "notes": [],
        "flash": {"code_bytes": 100},
    }


def test_long_names_are_cut_and_are_whole_in_the_title() -> None:
    page = memory_html(a_result())
    assert f'title="{LONG}">block_<wbr>0/<wbr>' in page and f">{LONG}<" not in page
    assert "<title>scratch 0.0 of CONV_2D: 32 bytes" in page
    assert "<title>input x: 32 bytes" in page


def test_each_colour_is_in_the_legend_once_and_the_picture_has_a_size() -> None:
    legend = re.findall(r'class="key (\w+)"></span>([^<]*)<', memory_html(a_result()))
    assert legend == [("one", "activation"), ("four", "input and output"), ("two", "scratch")]
    picture = memory_svg(a_result())
    assert ">input and output</text>" in picture
    width, height = re.findall(r'^<svg[^>]* width="(\d+)" height="(\d+)"', picture)[0]
    assert f'viewBox="-72 -64 {width} {height}"' in picture


def test_the_picture_names_its_peak_its_tensors_and_its_layers() -> None:
    result = a_result()
    result["layers"] = [{"operator": "CONV_2D"}, {"operator": "SOFTMAX"}]
    for picture in (memory_svg(result), memory_html(result)):
        assert ">peak: 96 bytes, layer 0</text>" in picture
        assert ">0 CONV_2D</text>" in picture and ">1 SOFTMAX</text>" in picture
        texts = re.findall(r'<text class="inside \w+"[^>]*>([^<]*)<', picture)
        assert {"x 32", "y 32", "scratch 0.0 of CONV_2D 32"} <= set(texts)
        assert any(text.startswith("block_0/") for text in texts)


def test_texts_of_many_layers_are_upright_and_do_not_overlap() -> None:
    uses = [
        {"kind": "activation", "name": f"t{n}", "offset": 0, "bytes": 96, "first": n, "last": n + 1}
        for n in range(39)
    ]
    uses.append({**uses[0], "kind": "input", "name": "x"})
    found = memory_values(uses, 96, ["ADD"] * 40)
    assert all(one["is_upright"] for one in found["texts"]) and len(found["texts"]) == 40
    assert len({(one["x"], one["y"]) for one in found["texts"]}) == 40
    # Numbers alone where operators have no room.
    assert [one["text"] for one in memory_values(uses, 96, ["ADD"] * 200)["axis"][:2]] == ["0", "4"]
    assert memory_values([], 0, [])["peak"] is None


@pytest.mark.tools
def test_a_dark_page_is_printed_dark_on_white_with_heads_that_repeat(
    tmp_path: Path, browser: Any
) -> None:
    from chromium import PALE_TEXTS, look_as

    page = tmp_path / "memory.html"
    page.write_text(memory_html(a_result()))
    look_as(browser, 700, "dark")
    browser.get(page.as_uri())
    colour = "return getComputedStyle(document.body).color"
    assert browser.execute_script(colour) == "rgb(230, 237, 243)"
    assert browser.execute_script(PALE_TEXTS) == []
    small = (
        "return [...document.querySelectorAll('th button')].map((b) => "
        "b.getBoundingClientRect()).filter((r) => r.width < 24 || r.height < 24).length"
    )
    assert browser.execute_script(small) == 0
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    emulated = {"media": "print", "features": [dark]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    assert browser.execute_script(colour) == "rgb(28, 36, 48)"
    # Chromium leaves buttons out of heads that it repeats on the next page.
    display = "return getComputedStyle(document.querySelector('th button')).display"
    assert browser.execute_script(display) == "contents"


@pytest.mark.tools
def test_a_page_is_as_wide_as_a_phone_and_shows_the_bytes(tmp_path: Path, browser: Any) -> None:
    from chromium import look_as

    page = tmp_path / "memory.html"
    page.write_text(memory_html(a_result()))
    look_as(browser, 390, "light")
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    edges = browser.execute_script(BYTES)
    assert len(edges) == 4 and max(edges) < 380


#: How far right the bytes of each use of the arena reach.
BYTES = """
const column = [...document.querySelectorAll("table")[0].rows[0].cells]
  .findIndex((cell) => cell.innerText.trim() === "bytes");
return [...document.querySelectorAll("table")[0].tBodies[0].rows]
  .map((row) => row.cells[column].getBoundingClientRect().right);
"""
