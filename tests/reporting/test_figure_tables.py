"""The table of figures that the pages of profile, bench, tuning and report share."""

from __future__ import annotations

from typing import Any

from utvm_deploy.records import KernelIdentity, Measurement, Record, Records, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.results.comparing.page import comparison_html, comparison_values
from utvm_deploy.results.pages.chart import bar
from utvm_deploy.results.pages.figure_table import Cell, Column, Line, column, figure_table
from utvm_deploy.tuning.report import tuning_html, tuning_values


def test_columns_that_say_nothing_are_left_out() -> None:
    lines = [Line("ADD", f"add_{place}", (bar(1, 2, "one", "ours"),), place) for place in (0, 1)]
    table = figure_table(
        "layers",
        lines,
        [
            column("cycles", ["10", "20"], "31"),
            column("core", ["10", "20"], "31", is_optional=True),
            column("misses", ["0", "0"], is_optional=True),
            column("output", ["", ""], is_optional=True, is_number=False),
            column("MACs", ["", ""]),
            Column("best so far", (Cell("", curve="M0,0"), Cell("")), is_optional=True),
        ],
    )
    assert table.heads == (">layer", "operator", "time", ">cycles", ">MACs", ">best so far")
    assert [cell.text for cell in table.foot] == ["", "whole model", "", "31", "", ""]


def test_a_page_of_bench_has_shares_a_total_and_no_column_twice() -> None:
    result = compared()
    (model,) = comparison_values(result)["models"]
    shown = [head.removeprefix(">") for head in model["table"].heads]
    assert shown == ["layer", "operator", "time", "ours", "share %", "CMSIS-NN", "ratio"]
    assert [cell.text for cell in model["table"].foot][3:] == ["50", "100.0", "", "1.50"]
    page = comparison_html(result)
    assert "<tfoot>" in page and 'class="sorts"' in page
    assert "modelled cycles</b>, never measured on silicon" in page
    assert "no function for any layer" in page
    # Equal bytes are told, and a ratio of another figure is shown where it says more.
    result["models"][0]["layers"][0] |= {"differing_bytes": 0, "ratio_core": 3.0}
    heads = comparison_values(result)["models"][0]["table"].heads
    assert heads[-2:] == (">ratio of core", "output")


def compared() -> dict[str, Any]:
    """What `utvm bench --json` prints of recorded figures."""

    def layer(index: int, ours: int, theirs: int | None) -> dict[str, Any]:
        ratio = theirs / ours if theirs else None
        return {
            "index": index,
            "operator": "CONV_2D",
            "kernel": "m_conv",
            "their_kernel": None,
            "macs": 0,
            "ratio": ratio,
            "ratio_core": ratio,
            "ours": {"cycles": ours, "core": ours},
            "theirs": {"cycles": theirs, "core": theirs} if theirs else None,
            "output_bytes": 4,
            "differing_bytes": None,
        }

    names = ("inputs", "outputs", "activations", "scratch", "weights", "stack")
    return {
        "board": "b",
        "failed": [{"name": "other", "error": "no function for any layer"}],
        "models": [
            {
                "name": "m",
                "source": "recorded",
                "engine": "CMSIS-NN",
                "build": None,
                "builds": [],
                "is_modelled": True,
                "inputs": "random",
                "figures": ["cycles", "core"],
                "ratio": 1.5,
                "ratio_core": 1.5,
                "ours": {"cycles": 50, "core": 50},
                "theirs": None,
                "placement": {"ours": dict.fromkeys(names, "ram"), "theirs": None},
                "layers": [layer(0, 20, 30), layer(1, 30, None)],
            }
        ],
    }


def test_a_page_of_tuning_counts_each_kernel_once() -> None:
    setting = Setting("cortex-m7", "gcc 12.2", "-O3", "0.1.0", "cycles")

    def tried(width: int, ticks: int, pixels: int, *, is_default: bool) -> Record:
        shape = (("width", width),)
        kernel = KernelIdentity(f"conv_{width}", "int8", "CONV_2D", shape, 1000)
        found = Measurement(ticks, float(ticks))
        return Record(
            kernel=kernel,
            candidate=Candidate.of("dsp", pixels=pixels),
            setting=setting,
            board="b",
            measurement=found,
            is_default=is_default,
        )

    records = [tried(8, 100, 1, is_default=True), tried(8, 50, 2, is_default=False)]
    records.append(tried(16, 30, 1, is_default=True))
    (section,) = tuning_values(Records(records))["settings"]
    table = section["table"]
    shown = [head.removeprefix(">") for head in table.heads]
    assert shown[:6] == ["kernel", "time", "default", "best", "share %", "per MAC"]
    assert "failed" not in shown and shown[-1] == "best so far"
    foot = dict(zip(shown, (cell.text for cell in table.foot), strict=True))
    assert (foot["default"], foot["best"], foot["gain"]) == ("130", "80", "1.62x")
    assert "<tfoot>" in tuning_html(Records(records), "r.jsonl")
