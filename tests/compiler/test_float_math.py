"""--float-math exact, fast: products and sums of float32 that are rounded together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy import connect
from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import INSTRUCTIONS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import EXACT, OF_MODELS
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.space import identity_of, space
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.records import RECORD, Measurement, Record, Records, Setting
from utvm_deploy.results.verifying.on_board import first_difference, verify

BOARD = "mps2_an500"


def model(path: Path) -> Path:
    """A layer of assembly, and one that TVM writes as C."""
    rng = np.random.default_rng(4)
    m = FloatWriter()
    weights = rng.normal(size=(6, 3, 3, 4)).astype(np.float32)
    y = m.conv2d(m.input((1, 6, 6, 4)), weights, np.ones(6, np.float32))
    right = rng.normal(size=(36, 8)).astype(np.float32)
    m.output(m.batch_matmul(m.reshape(y, (1, 6, 36)), m.constant(right)))
    return m.save(path)


def test_only_fast_fuses(tmp_path: Path) -> None:
    path = model(tmp_path / "model.tflite")
    made = {math: utvm_deploy.compile(path, BOARD, float_math=math) for math in ("exact", "fast")}
    texts = {math: "".join(one.sources.values()) for math, one in made.items()}
    assert "vmla.f32" in texts["exact"] and "vfma.f32" not in texts["exact"]
    assert "vfma.f32" in texts["fast"] and "vmla.f32" in texts["fast"]  # that of the check
    assert "fp-contract=off" in texts["exact"] and "fp-contract=off" not in texts["fast"]
    assert "fp-contract=fast" in texts["fast"]
    archive = tmp_path / "model.tar"
    write_library(made["fast"], archive)
    assert read_library(archive).float_math == "fast"


def test_another_word_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path / "model.tflite")
    with pytest.raises(CompileError, match="no float math 'fats'; choose one of exact, fast"):
        utvm_deploy.compile(path, BOARD, float_math="fats")


@pytest.mark.emulator
def test_fast_is_verified_within_its_bound(tmp_path: Path) -> None:
    path = model(tmp_path / "model.tflite")
    samples = random_samples(load_model(path), 2)
    with connect(BOARD, timing=INSTRUCTIONS) as device:
        outputs = []
        for math, bound in (("exact", EXACT), ("fast", OF_MODELS)):
            compiled = utvm_deploy.compile(path, device.board, float_math=math)
            loaded = device.load(compiled, into="ram")
            found = verify(loaded, path, samples)
            assert found.ok and found.bound == bound
            outputs.append(loaded.run(samples.inputs[0])[0][0])
            loaded.unload()
    assert first_difference(0, "output", outputs[1], outputs[0]) is not None
    assert first_difference(0, "output", outputs[1], outputs[0], OF_MODELS) is None


@pytest.mark.tools
def test_records_are_current_for_both(tmp_path: Path) -> None:
    """They are measured with exact sums; the fused kernel of the same candidate follows them."""
    path = model(tmp_path / "model.tflite")
    board = load_board(BOARD)
    core = board.cpu.kernel_core
    graph = simplify(load_model(path))
    operator = next(one for one in graph.operators if one.kind == "CONV_2D")
    first, other, *_ = [one for one in space(graph, operator, core) if one.family == "fpu"]
    setting = Setting(core, "gcc", "-O3", "0.2.0", "instructions")
    known = Records(
        Record(
            identity_of(graph, operator),
            setting,
            candidate,
            Measurement(ticks, float(ticks)),
            is_default=candidate == first,
            code=record_code(candidate_function(graph, operator, core, candidate)[1]),
        )
        for candidate, ticks in ((first, 90), (other, 50))
    )
    for math in ("exact", "fast"):
        compiled = compile_model(path, board, CompileOptions(records=known, float_math=math))
        layer = next(one for one in compiled.layers if one.kind == "CONV_2D")
        assert layer.origin == RECORD and "stale" not in layer.why
        assert ("_fused" in layer.kernel) == (math == "fast")
