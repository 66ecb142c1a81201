"""The gate: what counts as growth, and what a baseline may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base.errors import BenchError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main
from utvm_deploy.cli.options.kinds import percent, size
from utvm_deploy.results.comparing.gate import Ours, excesses, growths, ours_of, read_baseline

DIGITS = str(data_dir("models") / "digits.tflite")
A, B = (0, "CONV_2D a"), (1, "ADD b")


def ours(a: int, b: int, *, board: str = "x", figure: str = "cycles") -> tuple[Ours, ...]:
    layers = {A: a, B: b}
    return (Ours("m", board, figure, a + b, layers, ram_bytes=1000, flash_bytes=5000),)


@pytest.mark.parametrize(
    ("now", "grown"),
    [
        ((1000, 1000), []),
        ((1030, 1000), []),  # exactly as much as allowed
        ((1031, 1000), ["layer 0 (CONV_2D a)"]),
        ((500, 1031), ["layer 1 (ADD b)"]),
        ((1040, 1040), ["layer 0 (CONV_2D a)", "layer 1 (ADD b)", "whole model"]),
        ((10, 10), []),
    ],
)
def test_growth(now: tuple[int, int], grown: list[str]) -> None:
    found = growths(ours(1000, 1000), ours(*now), 3.0)
    assert [item.what for item in found] == grown


def test_growth_of_memory_is_growth() -> None:
    larger = (Ours("m", "x", "cycles", 2000, {A: 1000, B: 1000}, ram_bytes=1100, flash_bytes=5500),)
    found = growths(ours(1000, 1000), larger, 3.0)
    assert [(item.what, item.figure) for item in found] == [("RAM", "bytes"), ("flash", "bytes")]


def test_growth_says_how_much() -> None:
    (item,) = growths(ours(1000, 9000), ours(1100, 8000), 3.0)
    assert str(item) == "m, layer 0 (CONV_2D a): 1,000 to 1,100 cycles (+10.0 %)"


def test_a_bench_result_is_judged_by_its_first_figure() -> None:
    def result(cycles: int, core: int) -> tuple[Ours, ...]:
        figures = {"cycles": cycles, "core": core}
        layer = {"index": 0, "operator": "ADD", "name": "b", "ours": figures}
        sizes = {"ours": {"ram_bytes": 1, "flash_bytes": 2}}
        model = {"name": "m", "ours": figures, "size": sizes, "layers": [layer]}
        return ours_of({"board": "x", "models": [model]}, "utvm.bench/1")

    assert growths(result(100, 50), result(100, 90), 3.0) == []
    assert [item.figure for item in growths(result(100, 50), result(110, 50), 3.0)] == [
        "cycles",
        "cycles",
    ]


def test_another_set_of_layers_is_judged_by_the_sum() -> None:
    fused = (Ours("m", "x", "cycles", 1900, {A: 1900}, 0, 0),)
    assert growths(ours(1000, 1000), fused, 3.0) == []
    slower = (Ours("m", "x", "cycles", 2200, {A: 2200}, 0, 0),)
    assert [item.what for item in growths(ours(1000, 1000), slower, 3.0)] == ["whole model"]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (ours(1, 1, board="y"), "the baseline of m is of y, and this run of x"),
        (ours(1, 1, figure="instructions"), "counts instructions, and this run cycles"),
        ((), r"holds no model 'm' \(it has nothing\)"),
    ],
)
def test_what_cannot_be_compared(before: tuple[Ours, ...], said: str) -> None:
    with pytest.raises(BenchError, match=said):
        growths(before, ours(1, 1), 3.0)


def modelled(schema: str, **facts: str) -> tuple[Ours, ...]:
    """A result of 100 modelled cycles, as the verb of the schema writes it."""
    common: dict[str, Any] = {"board": "x", **facts}
    if schema == "utvm.profile/1":
        figures = {"model": "m", "tick_unit": "cycles", "ticks": 100, "is_modelled": True}
        return ours_of(
            {**common, **figures, "ram_bytes": 1, "flash_bytes": 2, "layers": []}, schema
        )
    sizes = {"ours": {"ram_bytes": 1, "flash_bytes": 2}}
    model = {"name": "m", "ours": {"cycles": 100}, "is_modelled": True, "size": sizes, "layers": []}
    return ours_of({**common, "models": [model]}, schema)


@pytest.mark.parametrize("schema", ["utvm.profile/1", "utvm.bench/1"])
def test_cycles_of_two_cycle_models_are_not_compared(schema: str) -> None:
    now = modelled(schema, cycle_model="00aa")
    assert growths(now, now, 3.0) == []
    # Version 0.1.0 did not name its model.
    for before in (modelled(schema, cycle_model="00bb"), modelled(schema)):
        with pytest.raises(BenchError, match="was not counted by today's cycle model"):
            growths(before, now, 3.0)


def test_limits() -> None:
    assert excesses(ours(1, 1), 1000, 5000) == [] == excesses(ours(1, 1), None, None)
    ram, flash = excesses(ours(1, 1), 999, 4000)
    assert str(ram) == "m takes 1,000 bytes of RAM, 1 over the limit of 999"
    assert str(flash) == "m takes 5,000 bytes of flash, 1,000 over the limit of 4,000"


def test_arguments() -> None:
    assert (percent("3%"), percent("2.5"), percent("0")) == (3.0, 2.5, 0.0)
    assert (size("4096"), size("64K"), size("1MiB"), size("2kb")) == (4096, 65536, 1 << 20, 2048)
    for wrong in ("", "x", "-1", "nan", "inf"):
        with pytest.raises(ValueError):
            percent(wrong)
        with pytest.raises(ValueError):
            size(wrong)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "utvm.bench/1"}', '{"schema": "utvm.run/1"}', "\0"]
)
def test_damaged_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prev.json"
    path.write_text(text)
    with pytest.raises(BenchError, match="utvm profile --json"):
        read_baseline(path)
    path.unlink()
    with pytest.raises(BenchError, match="cannot read the baseline"):
        read_baseline(path)


@pytest.mark.tools
def test_profile_has_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = ["profile", DIGITS, "--board", "host"]
    assert main([*profile, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    (before,) = ours_of(result, result["schema"])
    assert (before.unit, before.total) == ("nanoseconds", result["ticks"])
    assert "gate" not in result

    # What this computer takes varies: the baseline is far below in one layer, far above elsewhere.
    for layer in result["layers"]:
        layer["ticks"] *= 1000
    result["ticks"] *= 1000
    result["layers"][1]["ticks"] = 1
    baseline = tmp_path / "prev.json"
    baseline.write_text(json.dumps(result))
    limits = ["--baseline", str(baseline), "--max-flash", "1K", "--max-ram", "100M"]
    assert main([*profile, "--json", *limits]) == 1
    captured = capsys.readouterr()
    gate = json.loads(captured.out)["gate"]
    assert not gate["ok"] and gate["fail_over_percent"] == 3.0
    assert [item["what"].split(" ")[1] for item in gate["grown"]] == ["1"]
    assert [item["memory"] for item in gate["over"]] == ["flash"]
    assert "GREW by more than 3 %" in captured.err and "OVER THE LIMIT" in captured.err
    assert main([*profile, "--max-ram", "100M"]) == 0
    assert "gate: nothing grew" in capsys.readouterr().out
