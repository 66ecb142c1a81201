"""Patterns of several operators: neighbours become one call, and records choose between calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.records import Measurement, Record, Records, read_records
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.model_runs import run_model
from utvm_deploy.tuning.records_file import RecordsFile

PLUGIN = '''
from math import prod
from utvm_deploy.backends import Backend, CText, Pattern, call

TEXT = """
static int32_t clamped(const int8_t *x, const int8_t *low, const int8_t *high, int32_t count,
                       int8_t *y) {
    for (int32_t i = 0; i < count; i++) {
        const int8_t least = x[i] > low[i] ? x[i] : low[i];
        y[i] = least < high[i] ? least : high[i];
    }
    return 0;
}
static int32_t greater(const int8_t *x, const int8_t *y, int32_t count, int8_t *z) {
    for (int32_t i = 0; i < count; i++) {
        z[i] = x[i] > y[i] ? x[i] : y[i];
    }
    return 0;
}
"""

def clamp(match):
    first, last = match.operations
    if first.result.shape != (1, 5, 7):
        return "it is of another shape"
    count = prod(last.result.shape)
    text = f"return clamped(input_0, input_1, input_2, {count}, output_0);"
    return call(match, "clamped", text, in_place=True)

def maximum(match):
    count = prod(match.first.result.shape)
    return call(match, "greater", f"return greater(input_0, input_1, {count}, output_0);")

backend = Backend(
    "Clamp",
    (Pattern(("MAXIMUM",), maximum), Pattern(("MAXIMUM", "MINIMUM"), clamp)),
    CText(TEXT),
)
'''
THEIRS = Candidate("backend-clamp")
HOST = load_board("host")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "clamp.py"
    path.write_text(PLUGIN)
    return path


def saved(path: Path, build: Callable[[ModelWriter, Callable[[str, int, int], int]], None]) -> Path:
    """A model; ``build`` gets a function that adds MAXIMUM or MINIMUM of two tensors."""
    m = ModelWriter()

    def extremum(kind: str, a: int, b: int) -> int:
        return m.node(kind, [a, b], m.tensors[a].shape, ("MaximumMinimumOptions", {}))

    build(m, extremum)
    return m.save(path)


def inputs(m: ModelWriter, count: int, shape: tuple[int, ...] = (1, 5, 7)) -> list[int]:
    return [m.input(shape, 0.05, -7) for _ in range(count)]


def kinds(compiled: CompiledModel) -> list[str]:
    return [layer.kind for layer in compiled.layers]


@pytest.mark.tools
def test_neighbours_become_one_call(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high, other = inputs(m, 4)
        # The third operator comes between the two that are merged, and reads none of theirs.
        larger = extremum("MAXIMUM", x, low)
        extra = extremum("MAXIMUM", other, high)
        y = extremum("MINIMUM", larger, extra)
        m.output(extremum("MINIMUM", extremum("MAXIMUM", y, low), high))

    model = saved(tmp_path / "two.tflite", build)
    compiled = utvm_deploy.compile(model, "host", plugin=plugin)
    assert kinds(compiled) == ["MAXIMUM", "MAXIMUM+MINIMUM", "MAXIMUM+MINIMUM"]
    assert [layer.operators for layer in compiled.layers] == [(1,), (0, 2), (3, 4)]
    assert len({layer.kernel for layer in compiled.layers}) == 2
    argv = ["verify", str(model), "--board", "host", "--plugin", str(plugin)]
    assert main(argv) == 0


def test_what_others_read_is_not_merged(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high = inputs(m, 3)
        # One result has a second reader, and one is an output of the model.
        larger = extremum("MAXIMUM", x, low)
        m.output(extremum("MINIMUM", larger, high), extremum("MAXIMUM", larger, high))
        shown = extremum("MAXIMUM", x, high)
        m.output(shown, extremum("MINIMUM", shown, low))

    model = saved(tmp_path / "shared.tflite", build)
    found = kinds(utvm_deploy.compile(model, "host", plugin=plugin))
    assert found == ["MAXIMUM", "MINIMUM", "MAXIMUM", "MAXIMUM", "MINIMUM"]


def test_fused_operators_that_are_refused_fall_back_operator_by_operator(
    plugin: Path, tmp_path: Path
) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high = inputs(m, 3, (1, 4, 4))
        m.output(extremum("MINIMUM", extremum("MAXIMUM", x, low), high))

    model = saved(tmp_path / "other.tflite", build)
    compiled = utvm_deploy.compile(model, "host", plugin=plugin)
    assert [(layer.kind, layer.engine) for layer in compiled.layers] == [
        ("MAXIMUM", "Clamp"),
        ("MINIMUM", "generic"),
    ]


@pytest.mark.tools
def test_records_choose_between_its_call_and_ours(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, y = inputs(m, 2)
        m.output(extremum("MAXIMUM", x, y))

    model, file = saved(tmp_path / "one.tflite", build), tmp_path / "r.jsonl"
    argv = ["tune", str(model), "--board", "host", "--trials", "6", "--records", str(file)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    found = list(read_records(file))
    (theirs,) = [record for record in found if record.candidate == THEIRS]
    assert theirs.measurement.is_ok

    def engine(ours_ticks: int, their_ticks: int) -> tuple[str, str]:
        records: list[Record] = [
            replace(record, measurement=Measurement(ticks, ticks))
            for record in found
            if record.measurement.is_ok
            for ticks in [their_ticks if record.candidate == THEIRS else ours_ticks]
        ]
        backend = load_plugin(plugin)
        compiled = compile_model(
            model, HOST, CompileOptions(backends=(backend,), records=Records(records))
        )
        return compiled.layers[0].engine, compiled.layers[0].why

    assert engine(ours_ticks=80, their_ticks=70)[0] == "Clamp"
    found_engine, why = engine(ours_ticks=70, their_ticks=80)
    assert found_engine == "generic"
    assert "greater of Clamp took 80 nanoseconds, ours 70, when it was tuned" in why
    # Another Python file may make other calls of the same C.
    plugin.write_text(plugin.read_text() + "\n# changed\n")
    assert engine(ours_ticks=70, their_ticks=80)[0] == "Clamp"


@pytest.mark.tools
def test_records_choose_between_fused_and_separate_operators(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high = inputs(m, 3)
        m.output(extremum("MINIMUM", extremum("MAXIMUM", x, low), high))

    model, file = saved(tmp_path / "chain.tflite", build), tmp_path / "r.jsonl"
    argv = ["tune", str(model), "--board", "host", "--trials", "3", "--records", str(file)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    of_region = [one for one in read_records(file) if one.kernel.operator == "MAXIMUM+MINIMUM"]
    # A computer's clock may say that it was slower in a second run.
    found = of_region[:2]
    assert [record.candidate.label for record in found] == [
        "backend-clamp",
        "backend-clamp chain=apart",
    ]
    assert all(record.measurement.ticks_min > 0 for record in found)
    # What the records have is not measured again.
    assert main([*argv, "--plugin", str(plugin)]) == 0
    assert len([one for one in read_records(file) if "+" in one.kernel.operator]) == len(of_region)

    def compiled(whole: Measurement, apart: int) -> list[str]:
        measurements = (whole, Measurement(apart, apart))
        records = [
            replace(record, measurement=measurement)
            for record, measurement in zip(found, measurements, strict=True)
        ]
        backend = load_plugin(plugin)
        return kinds(
            compile_model(
                model, HOST, CompileOptions(backends=(backend,), records=Records(records))
            )
        )

    merged, apart = ["MAXIMUM+MINIMUM"], ["MAXIMUM", "MINIMUM"]
    assert compiled(Measurement(70, 70), apart=80) == merged
    assert compiled(Measurement(80, 80), apart=80) == apart
    assert compiled(Measurement(error="wrong output"), apart=90) == apart
    # Another text of the plug-in was never measured.
    plugin.write_text(plugin.read_text().replace("least < high", "least<high"))
    assert compiled(Measurement(80, 80), apart=70) == merged


@pytest.mark.tools
def test_fused_operators_that_compute_other_bytes_are_not_taken(
    plugin: Path, tmp_path: Path
) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high = inputs(m, 3)
        m.output(extremum("MINIMUM", extremum("MAXIMUM", x, low), high))

    plugin.write_text(plugin.read_text().replace("least < high", "least > high"))
    model, file = saved(tmp_path / "wrong.tflite", build), tmp_path / "r.jsonl"
    argv = ["tune", str(model), "--board", "host", "--trials", "3", "--records", str(file)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    found = utvm_deploy.compile(model, "host", plugin=plugin, records=file)
    assert kinds(found) == ["MAXIMUM", "MINIMUM"]


@pytest.mark.tools
def test_the_gain_of_leaving_the_backend_is_measured(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, y = inputs(m, 2)
        m.output(extremum("MAXIMUM", x, y))

    model, file = saved(tmp_path / "one.tflite", build), tmp_path / "r.jsonl"
    argv = ["tune", str(model), "--board", "host", "--trials", "2", "--records", str(file)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    # By these records our default is the faster one, so only the backend's layer changes.
    records = [
        replace(record, measurement=Measurement(ticks, ticks))
        for record in read_records(file)
        for ticks in [900 if record.candidate == THEIRS else 100]
    ]
    kept = tmp_path / "kept.jsonl"
    graph = simplify(load_model(model))
    with utvm_deploy.connect("host") as device, RecordsFile(kept) as changed:
        changed.extend(records)
        found = run_model(
            graph,
            device,
            changed,
            records[0].setting,
            level="time",
            backends=(load_plugin(plugin),),
        )
    assert found.note == ""
    assert found.before is not None and found.after is not None


def test_equal_fused_operators_share_a_function_and_bytes(plugin: Path, tmp_path: Path) -> None:
    def build(m: ModelWriter, extremum: Callable[[str, int, int], int]) -> None:
        x, low, high = inputs(m, 3)
        m.output(extremum("MINIMUM", extremum("MAXIMUM", x, low), high))

    model = saved(tmp_path / "same.tflite", build)
    first, second = (utvm_deploy.compile(model, "host", plugin=plugin) for _ in range(2))
    assert first.sources == second.sources
    assert np.sum([layer.is_external for layer in first.layers]) == 1
