"""The cost of layers that are computed in strips of rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.cli.main import main
from utvm_deploy.results.profiling.page import profile_html, profile_values

pytestmark = pytest.mark.tools
BOARD = "mps2_an500"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 32, 32, 2), 0.05, 0)
    y = m.conv2d(x, rng.integers(-99, 99, (16, 3, 3, 2), dtype=np.int8), padding="SAME")
    m.output(m.conv2d(y, rng.integers(-99, 99, (2, 3, 3, 16), dtype=np.int8), stride=2))
    return m.save(tmp_path_factory.mktemp("profiled") / "wide.tflite")


def test_strips_are_added_up_to_the_layer_of_the_file(path: Path) -> None:
    found = utvm_deploy.profile(path, BOARD, optimize="ram")
    whole = utvm_deploy.profile(path, BOARD, scratch="stack")
    result = found.to_dict()
    rows = result["layers"]
    assert [row["name"] for row in rows] == [row["name"] for row in whole.to_dict()["layers"]]
    assert [row["macs"] for row in rows] == [row["macs"] for row in whole.to_dict()["layers"]]
    assert [row["strips"] for row in whole.to_dict()["layers"]] == [0, 0]
    for row, of_whole in zip(rows, whole.to_dict()["layers"], strict=True):
        calls = row["calls"]
        assert row["strips"] > 1 and len(calls) >= row["strips"]
        assert {call["operator"] for call in calls} <= {"CONV_2D", "MOVE"}
        assert row["index"] == calls[0]["index"] and "[" not in row["name"] + of_whole["name"]
        for name, count in row["figures"].items():
            assert count == sum(call["figures"][name] for call in calls)
        assert row["ticks"] == row["figures"]["cycles"] == sum(call["ticks"] for call in calls)
        # The least cycles of the layer do not depend on how it is computed.
        assert row["bound"]["limit"] == of_whole["bound"]["limit"]
    calls = found.found.calls
    assert [call.layer.index for call in calls] == list(range(len(calls)))
    assert [row["strips"] for row in found.table] == [row["strips"] for row in rows]
    assert f"CONV_2D, {rows[0]['strips']} strips" in profile_html(result).replace("<wbr>", "")
    spans = [one for one in found.trace()["traceEvents"] if "layer" in one.get("args", {})]
    assert [one["args"]["layer"] for one in spans] == list(range(len(calls)))


def test_rows_are_moved_through_registers_only(path: Path) -> None:
    """Blocks of 16 bytes once went through the stack, which took 20 cycles for each."""
    rows = utvm_deploy.profile(path, BOARD, optimize="ram").to_dict()["layers"]
    moves = [call for row in rows for call in row["calls"] if call["operator"] == "MOVE"]
    assert moves
    for call in moves:
        size = int(re.findall(r"move_\d+_(\d+)_of", call["kernel"])[0])
        assert call["figures"]["core"] <= 12 * (size // 16) + 150


def test_the_page_finds_a_layer_of_bench_by_its_name(path: Path) -> None:
    result = utvm_deploy.profile(path, BOARD, optimize="ram").to_dict()
    first, second = result["layers"]
    unit = result["tick_unit"]
    theirs = [
        {"index": i, "operator": row["operator"], "name": row["name"], "theirs": {unit: 7000 + i}}
        | {"ratio": 1.0}
        for i, row in enumerate((first, second))
    ]
    text = profile_html(result)
    assert "7,000" not in text
    values = profile_values(result, {"layers": theirs, "theirs": None, "ratio": 1.0})
    assert "7,000" in str(values["table"]) and "7,001" in str(values["table"])


def test_the_verb_says_how_many_strips(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["profile", str(path), "--board", BOARD, "--optimize", "ram", "--no-store"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "layers in strips of rows, which are added up: 0 (" in text and "MOVE" not in text
    assert main([*argv, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    assert f"{rows[1]['index']} ({rows[1]['strips']} strips)" in text
