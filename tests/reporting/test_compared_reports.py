"""Two reports on models and boards, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.base.errors import BenchError
from utvm_deploy.cli.main import main
from utvm_deploy.results.comparing.gate import ours_of
from utvm_deploy.results.pages.embedded_json import ELEMENT
from utvm_deploy.results.runs.difference import Change, differences

SCHEMA = "utvm.report/2"


def layer(index: int, operator: str, name: str, ticks: int) -> dict[str, Any]:
    return {"index": index, "operator": operator, "name": name, "ticks": ticks}


def report(
    layers: list[dict[str, Any]], accuracy: float | None = None, rmse: float | None = None
) -> dict[str, Any]:
    metrics = {"accuracy": accuracy} if rmse is None else {"rmse": rmse}
    return {
        "schema": SCHEMA,
        "profile": {
            "model": "m",
            "board": "mps2_an500",
            "tick_unit": "cycles",
            "is_modelled": True,
            "cycle_model": "00aa",
            "ticks": sum(one["ticks"] for one in layers),
            "layers": layers,
            "ram_bytes": 2000,
            "flash_bytes": 5000,
        },
        "evaluation": {"runs": [{"engine": "device", "metrics": metrics}]},
    }


BEFORE = report([layer(0, "CONV_2D", "a", 1000), layer(1, "SOFTMAX", "b", 50)], 0.95)
NOW = report(
    [layer(0, "PAD", "p", 10), layer(1, "CONV_2D", "a", 900), layer(2, "SOFTMAX", "b", 50)], 0.9
)


def page(path: Path, result: dict[str, Any]) -> str:
    text = json.dumps(result)
    path.write_text(f'<html><script type="application/json" id="{ELEMENT}">\n{text}\n</script>')
    return str(path)


def file(path: Path, result: dict[str, Any]) -> str:
    path.write_text(json.dumps(result))
    return str(path)


def test_layers_of_one_name_are_the_same_layer() -> None:
    (found,) = differences(ours_of(BEFORE, SCHEMA), ours_of(NOW, SCHEMA))
    shown = {change.what: (change.before, change.now) for change in found.changes}
    assert shown == {
        "layer 0 (PAD p)": (None, 10),
        "layer 1 (CONV_2D a)": (1000, 900),
        "layer 2 (SOFTMAX b)": (50, 50),
        "whole model": (1050, 960),
        "RAM": (2000, 2000),
        "flash": (5000, 5000),
        "accuracy (device)": (0.95, 0.9),
    }


def test_names_that_occur_twice_keep_their_numbers() -> None:
    twice = report([layer(0, "ADD", "x", 5), layer(1, "ADD", "x", 7)])
    once = report([layer(0, "PAD", "p", 1), layer(1, "ADD", "x", 7)])
    (found,) = differences(ours_of(twice, SCHEMA), ours_of(once, SCHEMA))
    shown = [(change.what, change.before, change.now) for change in found.changes[:3]]
    assert shown == [
        ("layer 0 (PAD p)", None, 1),
        ("layer 1 (ADD x)", 7, 7),
        ("layer 0 (ADD x)", 5, None),
    ]


def test_text_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, now = page(tmp_path / "a.html", BEFORE), file(tmp_path / "b.json", NOW)
    html = tmp_path / "c.html"
    assert main(["compare", before, now, "--html", str(html)]) == 0
    told = capsys.readouterr().out
    assert "accuracy (device)" in told and "0.9500" in told and "0.9000" in told
    (row,) = (one for one in html.read_text().splitlines() if "accuracy (device)" in one)
    assert row.startswith("<tr><td>accuracy (device)")
    # Less accuracy is worse, and fewer cycles are better.
    assert html.read_text().count('class="n bad"') == 1
    assert html.read_text().count('class="n good"') == 2
    assert main(["compare", before, now, "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["changes"][-1] == {
        "what": "accuracy (device)",
        "unit": "",
        "before": 0.95,
        "now": 0.9,
        "smaller_is_better": False,
        "percent": pytest.approx(-5.263, abs=0.01),
    }


def test_errors_are_better_when_smaller() -> None:
    found = utvm_deploy.compare(report([], rmse=2.0), report([], rmse=1.0)).table[-1]
    assert (found["what"], found["smaller_is_better"]) == ("rmse (device)", True)


def test_a_change_from_zero_or_a_small_one_is_not_zero_percent() -> None:
    def shown(before: float | None, now: float | None) -> str:
        return Change("whole model", "cycles", before, now).percent_text

    assert [shown(0, 5), shown(0, 0), shown(None, 5), shown(5, 0)] == ["from 0", "", "", "-100.0 %"]
    assert [shown(10**6, 10**6 + 1), shown(7, 7)] == ["+0.0001 %", "+0.0 %"]


def test_a_report_and_a_profile() -> None:
    profile = {"schema": "utvm.profile/1", **NOW["profile"]}
    rows = utvm_deploy.compare(BEFORE, profile).table
    assert (rows[-1]["what"], rows[-1]["before"], rows[-1]["now"]) == (
        "accuracy (device)",
        0.95,
        None,
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("profile", {}),
        ("profile", []),
        ("profile.layers", 5),
        ("profile.layers", [{"index": 0}]),
        ("profile.ticks", "many"),
        ("profile.ticks", float("inf")),
        ("profile.ticks", 10**400),
        ("profile.ram_bytes", -1),
        ("evaluation", []),
        ("evaluation", {"runs": [{"engine": "device", "metrics": [1]}]}),
        ("evaluation", {"runs": [{"engine": "device", "metrics": {"accuracy": "good"}}]}),
        ("schema", "utvm.report/1"),
        ("schema", 2),
    ],
)
def test_damaged_reports_are_one_sentence(tmp_path: Path, path: str, value: object) -> None:
    damaged = json.loads(json.dumps(NOW))
    *parents, name = path.split(".")
    place = damaged
    for one in parents:
        place = place[one]
    place[name] = value
    for given in (file(tmp_path / "d.json", damaged), page(tmp_path / "d.html", damaged)):
        with pytest.raises(BenchError, match=r"is not a baseline; give what `utvm profile --json`"):
            utvm_deploy.compare(given, NOW)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_truncated_reports_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float
) -> None:
    for text, name in (
        (json.dumps(BEFORE), "a.json"),
        (Path(page(tmp_path / "p.html", BEFORE)).read_text(), "a.html"),
    ):
        (tmp_path / name).write_text(text[: int(share * len(text))])
        now = file(tmp_path / "now.json", NOW)
        assert main(["compare", str(tmp_path / name), now]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and "is not a baseline" in line
