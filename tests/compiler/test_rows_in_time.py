"""Models whose input comes row by row: what is planned, refused, written down and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.compiled.model import CompiledModel, PushedStrip
from utvm_deploy.compiler.row_state import with_row_state
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.strips.input_rows import with_input_rows

BOARD = "mps2_an500"


def small(m: ModelWriter, x: int) -> int:
    rng = np.random.default_rng(3)
    y = m.conv2d(x, rng.integers(-99, 99, (4, 3, 3, 2), dtype=np.int8), padding="SAME")
    return m.conv2d(y, rng.integers(-99, 99, (2, 3, 3, 4), dtype=np.int8), stride=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    m = ModelWriter()
    m.output(small(m, m.input((1, 24, 16, 2), 0.05, 0)))
    return m.save(tmp_path_factory.mktemp("rows") / "small.tflite")


@pytest.fixture(scope="module")
def compiled(model: Path) -> CompiledModel:
    return utvm_deploy.compile(model, BOARD, optimize="ram", input_rows=True)


def test_the_arena_never_has_the_whole_input(compiled: CompiledModel) -> None:
    rows = compiled.input_rows
    assert rows is not None and compiled.inputs == ()
    assert (rows.count, rows.row_bytes, rows.buffer.shape) == (24, 32, (1, 24, 16, 2))
    pushed = [b for layer in compiled.layers if layer.kind == "INPUT_ROWS" for b in layer.outputs]
    ends = [strip.end for strip in rows.strips]
    assert [buffer.rows for buffer in pushed] == list(zip([0, *ends], ends, strict=False))
    assert all(buffer.size_bytes < rows.buffer.size_bytes / 2 for buffer in pushed)
    assert ends == sorted(set(ends)) and ends[-1] <= rows.count
    assert [strip.offset for strip in rows.strips] == [buffer.offset for buffer in pushed]


@pytest.mark.slow
def test_the_row_count_is_part_of_the_arena_and_of_a_budget(
    model: Path, compiled: CompiledModel
) -> None:
    rows = compiled.input_rows
    assert rows is not None
    assert rows.state_offset % 4 == 0 and rows.state_offset + 4 == compiled.arena_bytes
    least = compiled.arena_bytes
    again = utvm_deploy.compile(model, BOARD, ram_budget=least, input_rows=True)
    assert again.arena_bytes <= least
    with pytest.raises(CompileError, match="RAM budget is 200 bytes"):
        utvm_deploy.compile(model, BOARD, ram_budget=200, input_rows=True)


@pytest.mark.parametrize(("before", "after"), [(0, 4), (32, 36), (33, 40), (35, 40)])
def test_the_row_count_begins_at_a_word(model: Path, before: int, after: int) -> None:
    graph = load_model(model)
    assert with_row_state(graph, before) == before
    assert with_row_state(with_input_rows(graph), before) == after


def test_the_header_documents_the_call_and_has_no_run(compiled: CompiledModel) -> None:
    header = compiled.sources["small.h"]
    assert "#define SMALL_INPUT_ROWS 24\n" in header
    assert "#define SMALL_INPUT_ROW_BYTES 32\n" in header
    assert "int32_t small_push_rows(uint8_t *arena, const int8_t *rows, uint32_t n);" in header
    assert "void small_reset(uint8_t *arena);" in header
    assert "small_run(" not in header + compiled.sources["small.c"]
    assert "small_input_0(" not in header and "INPUT_0_OFFSET" not in header


def test_an_archive_keeps_the_rows(compiled: CompiledModel, tmp_path: Path) -> None:
    write_library(compiled, tmp_path / "m.tar")
    assert read_library(tmp_path / "m.tar").input_rows == compiled.input_rows


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state_offset": 10**6}, "the number of rows has 4 bytes at 1000000, outside"),
        ({"count": 25}, "25 rows are not the input"),
        ({"strips": (PushedStrip(25, 0, 0),)}, "the end of a strip is 25, not 1 to 24"),
        ({"strips": (PushedStrip(2, 10**6, 0),)}, "rows of the input has 64 bytes at 1000000"),
    ],
)
def test_a_forged_archive_is_refused(
    compiled: CompiledModel, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    rows = compiled.input_rows
    assert rows is not None
    forged = replace(compiled, input_rows=replace(rows, **change))
    write_library(forged, tmp_path / "m.tar")
    with pytest.raises(ModelError, match=words):
        read_library(tmp_path / "m.tar")


@pytest.mark.slow
def test_a_level_without_a_budget_takes_strips_as_well(model: Path) -> None:
    made = utvm_deploy.compile(model, BOARD, input_rows=True)
    assert made.input_rows is not None and len(made.input_rows.strips) > 1


def test_a_reshape_of_the_input_is_no_layer(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 24 * 16 * 2), 0.05, 0)
    m.output(small(m, m.reshape(x, (1, 24, 16, 2))))
    made = utvm_deploy.compile(m.save(tmp_path / "m.tflite"), BOARD, input_rows=True)
    rows = made.input_rows
    assert rows is not None and rows.buffer.shape == (1, 768)
    assert (rows.count, rows.row_bytes) == (24, 32)
    assert not any(layer.kind == "RESHAPE" for layer in made.layers)


def dense(m: ModelWriter) -> None:
    x = m.input((1, 12), 0.05, 0)
    m.output(m.fully_connected(x, np.ones((3, 12), np.int8), np.zeros(3, int), scale=0.5))


def softmax(m: ModelWriter) -> None:
    m.output(m.softmax(m.input((1, 8, 4, 2), 0.05, 0)))


def two_inputs(m: ModelWriter) -> None:
    m.output(m.add(*(m.input((1, 8, 4, 2), 0.05, 0) for _ in range(2)), scale=0.1))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            dense,
            r"the layer FULLY_CONNECTED .* reads the input \[1, 12\], which is not of shape",
        ),
        (softmax, r"the layer SOFTMAX that makes .* needs all rows of the input at once"),
        (two_inputs, "has 2 inputs, and only a single one can come row by row"),
    ],
)
def test_what_cannot_be_streamed_is_refused_in_one_sentence(
    build: object, words: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    build(m)  # type: ignore[operator]
    with pytest.raises(CompileError, match=words) as caught:
        utvm_deploy.compile(m.save(tmp_path / "m.tflite"), BOARD, input_rows=True)
    assert "leave --input-rows out" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.tools  # the verb asks the oracle whether it takes the model
def test_a_stream_names_its_input_and_not_our_operator(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 24, 4, 2))
    weights = np.ones((2, 12, 1, 2), np.int8)
    m.output(m.conv2d(x, weights, np.zeros(2), scale=1.0, padding="VALID"))
    said = r"net keeps the last elements of its input 'tensor_0' .*; leave --input-rows out"
    with pytest.raises(CompileError, match=said):
        utvm_deploy.compile(m.save(tmp_path / "net.tflite"), "host", stream=2, input_rows=True)


@pytest.mark.tools
def test_compile_reports_the_arena_and_the_rows(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "m.tar"
    options = ["--board", BOARD, "--optimize", "ram", "--input-rows", "-o", str(target), "--json"]
    assert main(["compile", str(model), *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["input_rows"] == {"count": 24, "bytes": 32}
    assert result["arena_bytes"] == read_library(target).arena_bytes


@pytest.mark.soak
def test_vww_takes_at_most_15000_bytes(shared_models: Path) -> None:
    path = shared_models / "vww_96_int8.tflite"
    made = utvm_deploy.compile(path, BOARD, optimize="ram", input_rows=True, ram_budget=15_000)
    assert made.arena_bytes <= 15_000
