"""Bundles of models that take their input row by row: built as their users build them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from bundle_cases import Case, write
from test_bundle_builds import PASS, STRICT, build, compile_as_cxx, run
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import check_bundle
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.oracle.reference import run_reference

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")


def make_rows_case(folder: Path, board_name: str) -> Case:
    """Two convolutions and a dense layer; three samples: one, three and all rows at a time."""
    rng = np.random.default_rng(8)
    m = ModelWriter()
    x = m.input((1, 12, 8, 2), scale=0.05, zero_point=-7)
    x = m.conv2d(
        x,
        rng.integers(-99, 99, (4, 3, 3, 2), dtype=np.int8),
        np.arange(4),
        scale=3.0,
        padding="SAME",
    )
    x = m.conv2d(
        x, rng.integers(-99, 99, (4, 3, 3, 4), dtype=np.int8), np.arange(4), scale=90.0, stride=2
    )
    height, width = m.tensors[x].shape[1:3]
    flat = m.reshape(x, (1, height * width * 4))
    weights = rng.integers(-99, 99, (5, height * width * 4), dtype=np.int8)
    m.output(m.fully_connected(flat, weights, np.arange(5), scale=9000.0))
    path = m.save(folder / "net.tflite")
    board = load_board(board_name)
    inputs = [[rng.integers(-128, 128, (1, 12, 8, 2), dtype=np.int8)] for _ in range(3)]
    expected = run_reference(path, inputs).outputs
    compiled = compile_model(path, board, CompileOptions(objective=Objective.RAM, input_rows=True))
    return Case(compiled, board, path, inputs, expected)


@pytest.fixture(scope="module")
def rows_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_rows_case(tmp_path_factory.mktemp("rows"), "mps2_an500")


ROWS_PASS = PASS.replace("2 sample", "3 sample")


@pytest.mark.tools
def test_selftest_and_example_run_clean_under_sanitizers(rows_case: Case, tmp_path: Path) -> None:
    sanitize = f"{STRICT} -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    bundle = write(rows_case, tmp_path / "bundle")
    folder = build(bundle, tmp_path / "build", f"-DCMAKE_C_FLAGS={sanitize}")
    assert run(folder / "net_selftest").stdout == ROWS_PASS
    assert len(run(folder / "net_example").stdout.splitlines()) == 5
    check_bundle(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    rows = rows_case.compiled.input_rows
    assert rows is not None
    expected = {"count": 12, "bytes": 16, "state_offset": rows.state_offset}
    assert manifest["input_rows"] == expected
    readme = (bundle / "README.md").read_text()
    assert "`net_push_rows(arena, rows, n)`" in readme and "12 rows, of 16 bytes each" in readme


@pytest.mark.tools
@pytest.mark.parametrize("form", ["cmake", "arduino"])
def test_the_files_are_valid_cxx(tmp_path: Path, form: str) -> None:
    bundle = write(make_rows_case(tmp_path, "host"), tmp_path / "bundle", format=form)
    compile_as_cxx(bundle, "g++", "c++11")
    for sketch in bundle.rglob("*.ino"):
        text = sketch.read_text()
        assert "net_reset(arena);" in text and "net_push_rows(arena, row, 1) > 0" in text
        assert "@" not in text and "net_run(" not in text


@pytest.mark.emulator
def test_the_selftest_passes_on_an_emulated_core(rows_case: Case, tmp_path: Path) -> None:
    emulator = rows_case.board.emulator
    assert emulator is not None
    for program in (rows_case.board.cpu.toolchain.compiler, emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    bundle = write(rows_case, tmp_path / "bundle")
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=selftest/cortex_m/toolchain.cmake"
    folder = build(bundle, tmp_path / "build", toolchain)
    arguments = ("-machine", emulator.machine, "-nographic", "-semihosting", "-kernel")
    assert run(emulator.program, *arguments, folder / "net_selftest.elf").stdout == ROWS_PASS
