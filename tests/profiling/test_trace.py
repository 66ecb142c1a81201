"""A profile as trace events."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.cli.main import main
from utvm_deploy.results.profiling.trace import trace_events

DIGITS = models.path("digits")


@pytest.mark.tools
def test_layers_follow_each_other_and_the_arena_is_counted() -> None:
    found = utvm_deploy.profile(DIGITS, "host")
    trace = found.trace()
    spans = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    layers = [one for one in spans if "layer" in one["args"]]
    assert [one["args"]["layer"] for one in layers] == [row["index"] for row in found.table]
    for one, after in itertools.pairwise(spans):
        assert after["ts"] == pytest.approx(one["ts"] + one["dur"])
    arena = [one["args"]["bytes in use"] for one in trace["traceEvents"] if one["ph"] == "C"]
    assert max(arena) <= found.found.arena_bytes
    assert max(arena) > 0 and arena[-1] == 0


def test_a_clock_makes_microseconds_and_none_is_said() -> None:
    result = {
        "model": "m",
        "board": "b",
        "tick_unit": "cycles",
        "ticks_per_second": 2_000_000,
        "is_modelled": True,
        "seconds": 15e-6,
        "ticks": 30,
        "layers": [
            {
                "index": 0,
                "operator": "ADD",
                "ticks": 20,
                "macs": 0,
                "kernel": "m_add",
                "why": "",
                "bound": None,
            }
        ],
    }
    trace = trace_events(result, [64])
    spans = [(one["name"], one["ts"], one["dur"]) for one in trace["traceEvents"] if "dur" in one]
    assert spans == [("ADD", 0, 10), ("between layers", 10, 5)]
    assert trace["otherData"]["unit"] == "modelled cycles"
    without = trace_events(result | {"seconds": None, "tick_unit": "instructions"}, [64])
    assert without["traceEvents"][2]["dur"] == 20
    assert without["otherData"]["time"].startswith("no clock")


@pytest.mark.tools
def test_the_verb_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    assert (
        main(["profile", str(DIGITS), "--board", "host", "--trace", str(file), "--no-store"]) == 0
    )
    assert json.loads(file.read_text())["traceEvents"]
    nowhere = str(tmp_path / "no" / "trace.json")
    assert main(["profile", str(DIGITS), "--board", "host", "--trace", nowhere]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main(["profile", str(DIGITS), "--board", "host", "--trace", str(DIGITS)]) == 1
    assert "is the model itself" in capsys.readouterr().err
