"""Python shows a large thing as one line, and a notebook as a small page without code."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.base.errors import MissingTool
from utvm_deploy.base.results import Tabled, plain_object
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.results.pages.bars_picture import MOST_BARS, bars_svg
from utvm_deploy.results.pages.notebook import (
    MOST_LETTERS,
    MOST_ROWS,
    html_of,
    notebook_html,
    register,
)

DIGITS = models.path("digits")


def test_a_model_a_graph_a_board_and_a_device_are_one_line_each() -> None:
    board = utvm_deploy.load_board("host")
    device = utvm_deploy.connect(board)
    compiled = utvm_deploy.compile(DIGITS, board)
    for shown, told in (
        (compiled, ("digits", "host", "arena", f"{compiled.arena_bytes:,} bytes", "flash")),
        (load_model(DIGITS), ("digits", "operators", "int8 1x8x8x1 -> int8 1x10")),
        (board, ("host", "RAM")),
        (device, ("host", "not started")),
    ):
        text = repr(shown)
        assert text.startswith(f"<{type(shown).__name__} ") and text.endswith(">")
        assert "\n" not in text and len(text) < 200
        assert all(one in text for one in told), text


def one_line_and_a_page(shown: Tabled, *told: str) -> None:
    """A short line with these words, equal rows, and a page that says both."""
    text, page, rows = repr(shown), html_of(shown), shown.table
    assert "\n" not in text and len(text) < 300
    assert all(one in text for one in told), text
    assert rows and all(row.keys() == rows[0].keys() for row in rows)
    assert "<table" in page and "<script" not in page
    assert (shown.svg is not None) == ("data:image/svg+xml" in page)


@pytest.mark.tools
def test_a_notebook_shows_a_device_a_loaded_model_and_its_layers() -> None:
    compiled = utvm_deploy.compile(DIGITS, "host")
    x = np.zeros((1, 8, 8, 1), np.int8)
    device = utvm_deploy.connect("host")
    one_line_and_a_page(device, "host", "not started")
    with device:
        model = device.load(compiled)
        one_line_and_a_page(device, "host", "runs")
        assert sum(row["bytes"] for row in device.table) == sum(r.size for r in device.board.memory)
        one_line_and_a_page(model, "digits", "in the image")
        assert model.table == compiled.table
        runs = model.run_layers(x)
        one_line_and_a_page(runs, f"{len(compiled.layers)} layers", "ticks")
        assert [row["layer"] for row in runs.table] == [one.layer.index for one in runs]
        last = runs[-1]
        one_line_and_a_page(last, f"layer {last.layer.index}", "int8 1x10")
        assert last.table[0]["greatest"] == last.outputs[0].max()
        model.unload()
        one_line_and_a_page(model, "unloaded")
        lost = device.load(compiled)
    one_line_and_a_page(lost, "lost, because the device was closed")
    one_line_and_a_page(device, "host", "closed")


class _Small(Tabled):
    @property
    def headline(self) -> str:
        return "a <b> & c"

    @property
    def table(self) -> list[dict[str, object]]:
        return [{"name": "<i>", "some_bytes": 1234567, "is_good": True, "none": None}]


def test_a_notebook_shows_an_escaped_table_without_scripts_or_addresses() -> None:
    page = html_of(_Small())
    assert "a &lt;b&gt; &amp; c" in page and "&lt;i&gt;" in page and "<i>" not in page
    assert "1,234,567" in page and ">some bytes<" in page and ">yes<" in page
    assert "<script" not in page and not re.search(r"https?://", page)


def test_a_notebook_that_runs_is_told_how_results_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = "notebooks need nbclient, nbformat and ipykernel: pip install '.[notebook]'"
    formatters = pytest.importorskip("IPython.core.formatters", reason=reason)
    shell = SimpleNamespace(display_formatter=formatters.DisplayFormatter())
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    register()
    shown, _ = shell.display_formatter.format(_Small())
    assert shown == {"text/plain": "<_Small a <b> & c>", "text/html": html_of(_Small())}
    # Without a shell, there is nobody to tell.
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    register()


#: A process that reads what another one stored, and where a notebook ran before it.
_READER = """
import pickle, sys, types
shown = {}
formatter = types.SimpleNamespace(for_type=lambda kind, show: shown.update({kind: show}))
formatters = types.SimpleNamespace(formatters={"text/html": formatter})
shell = types.SimpleNamespace(display_formatter=formatters)
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
with open(sys.argv[1], "rb") as file:
    compiled = pickle.load(file)
assert compiled.svg.lstrip().startswith("<svg"), compiled.svg
(show,) = shown.values()
assert "data:image/svg+xml" in show(compiled)
"""


@pytest.mark.slow
def test_a_result_has_its_picture_in_a_process_that_called_no_function(tmp_path: Path) -> None:
    stored = tmp_path / "compiled.pickle"
    stored.write_bytes(pickle.dumps(utvm_deploy.compile(DIGITS, "host")))
    subprocess.run([sys.executable, "-c", _READER, str(stored)], check=True, timeout=60)


def test_a_notebook_shows_the_first_rows_and_says_how_many_more_there_are() -> None:
    page = notebook_html("many", [{"row": row} for row in range(MOST_ROWS + 1234)])
    assert page.count("<tr>") == MOST_ROWS + 1
    assert "1,234 more rows" in page


def test_a_notebook_cuts_long_names_and_leaves_out_empty_columns() -> None:
    name = "/".join(f"part_{number}" for number in range(40))
    page = notebook_html("long", [{"name": name, "problem": None, "note": "", "bytes": 0}])
    (cell,) = re.findall(r"<td title=\"([^\"]*)\">([^<]*)</td>", page)
    assert cell[0] == name
    assert len(cell[1]) <= MOST_LETTERS and cell[1].startswith("part_0") and "..." in cell[1]
    assert cell[1].endswith("part_39")
    assert re.findall(r"<th[^>]*>([^<]*)</th>", page) == ["name", "bytes"]


def test_without_pandas_one_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingTool, match=r"pandas is not installed.*pip install pandas"):
        _Small().to_pandas()


def test_with_pandas_the_table_is_a_data_frame() -> None:
    pytest.importorskip("pandas")
    frame = _Small().to_pandas()
    assert list(frame.columns) == ["name", "some_bytes", "is_good", "none"]
    assert frame["some_bytes"].sum() == 1234567


def test_an_object_is_what_a_reader_of_json_gets() -> None:
    found = plain_object("utvm.some/1", {"shape": (1, 2), "path": DIGITS})
    assert found == {"schema": "utvm.some/1", "shape": [1, 2], "path": str(DIGITS)}


def test_bars_of_many_rows_keep_the_longest_in_their_order() -> None:
    rows = [(f"row {place}", [float(place)]) for place in range(MOST_BARS + 5)]
    picture = bars_svg("time <of> rows", rows, ["ticks"])
    assert picture.lstrip().startswith("<svg") and "time &lt;of&gt; rows" in picture
    assert ">row 4<" not in picture and picture.index(">row 5<") < picture.index(">row 6<")
    assert "5 shorter rows are left out" in picture
