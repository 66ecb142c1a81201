"""Compiling with records: the best one is used, and the report says where it came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter
from tune_cases import write_model

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.picks import Pick
from utvm_deploy.compiler.planning import decision
from utvm_deploy.compiler.planning.choice import is_possible
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records import (
    DEFAULT,
    NEAREST,
    NO_CODE,
    RECORD,
    Measurement,
    Record,
    Records,
    Setting,
)
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.records_file import RecordsFile


@pytest.fixture(autouse=True)
def _nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships changes with every tuning; here only the test's own records count."""
    monkeypatch.setattr(decision, "shipped_records", lambda core: Records())


def emitted(graph: Graph, operator: Operator, core: str, candidate: Candidate) -> str:
    """The code that ``tune`` would write."""
    return record_code(candidate_function(graph, operator, core, candidate)[1])


def records(path: Path, core: str, **ticks: int) -> Records:
    """Records of a model's first layer in generic tiles, named t2x2 and so on.

    "default" is that without choices.
    """
    setting = Setting(core, "gcc", "", "0.1.0", "instructions")
    graph = simplify(load_model(path))
    operator = graph.operators[0]
    found = []
    for name, count in ticks.items():
        is_default = name == "default"
        candidate = Candidate("generic") if is_default else Candidate.of("generic", tile=name[1:])
        try:
            code = emitted(graph, operator, core, candidate)
        except UnsupportedOperator:
            code = NO_CODE
        kernel, measurement = identity_of(graph, operator), Measurement(count, float(count))
        found.append(
            Record(kernel, setting, candidate, measurement, is_default=is_default, code=code)
        )
    return Records(found)


def origins(compiled: CompiledModel) -> dict[str, str]:
    return {layer.kind: layer.origin for layer in compiled.layers}


def test_the_best_record_is_compiled(tmp_path: Path) -> None:
    path = write_model(tmp_path / "small.tflite")
    board = load_board("host")
    known = records(path, "host", t1x2=70, t3x2=50, default=60)
    compiled = compile_model(path, board, CompileOptions(records=known))
    assert origins(compiled) == {
        "CONV_2D": RECORD,
        "MAX_POOL_2D": DEFAULT,
        "FULLY_CONNECTED": DEFAULT,
        "SOFTMAX": DEFAULT,
    }
    (first, *_) = compiled.layers
    assert "3 pixels x 2 channels" in first.why and first.why.endswith("by a record")
    plain = compile_model(path, board)
    assert set(origins(plain).values()) == {DEFAULT}
    assert plain.sources != compiled.sources
    # Whichever is chosen, the bytes are the reference's.
    sample = np.random.default_rng(1).integers(-128, 128, (1, 6, 6, 4), dtype=np.int8)
    ((expected,),) = run_reference(path, [[sample]]).outputs
    with connect(board) as device:
        found = device.load(compiled)(sample)
    assert np.asarray(found).tobytes() == expected.tobytes()


def test_records_of_other_cores_and_what_does_not_fit(tmp_path: Path) -> None:
    path = write_model(tmp_path / "small.tflite")
    board = load_board("host")
    for known in (
        records(path, "cortex-m7", t3x2=50),
        records(path, "host", t5x5=50),
        Records(replace(r, candidate=Candidate("fpga")) for r in records(path, "host", t3x2=5)),
    ):
        assert set(origins(compile_model(path, board, CompileOptions(records=known))).values()) == {
            DEFAULT
        }
    # The second best is taken where the best does not fit.
    known = records(path, "host", t5x5=50, t3x2=60)
    assert origins(compile_model(path, board, CompileOptions(records=known)))["CONV_2D"] == RECORD


def test_the_nearest_shape_helps(tmp_path: Path) -> None:
    path = write_model(tmp_path / "small.tflite")
    wider = write_model(tmp_path / "wider.tflite", channels=6)
    board = load_board("host")
    known = records(wider, "host", t3x2=50, default=60)
    assert origins(compile_model(path, board, CompileOptions(records=known)))["CONV_2D"] == NEAREST
    known = records(wider, "host", t3x2=60, default=60)
    assert origins(compile_model(path, board, CompileOptions(records=known)))["CONV_2D"] == DEFAULT


def test_the_command_line_takes_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path / "small.tflite")
    file = tmp_path / "r.jsonl"
    with RecordsFile(file) as open_file:
        open_file.extend(records(path, "host", t3x2=50, default=60))
    command = ["compile", str(path), "--board", "host", "-o", str(tmp_path / "x.tar"), "--json"]
    assert main([*command, "--records", str(file)]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert layers[0]["origin"] == RECORD and layers[-1]["origin"] == DEFAULT
    assert main([*command, "--records", str(tmp_path / "absent.jsonl")]) == 1
    assert "there is no records file" in capsys.readouterr().err


def test_records_of_another_core_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_model(tmp_path / "small.tflite")
    known = records(path, "cortex-m4", t3x2=50)
    compile_model(path, load_board("host"), CompileOptions(records=known))
    assert "the records are of cortex-m4; there is nothing for host in them" in caplog.text


@pytest.mark.parametrize("unroll", [2, 4])
def test_an_unrolled_maximum_is_right_for_any_input(tmp_path: Path, unroll: int) -> None:
    """A maximum that was unrolled came out right for half of all inputs of two elements."""
    m = ModelWriter()
    x = m.max_pool(m.input((1, 4, 4, 4), 0.1, 5), 2)
    constant = m.constant(np.array([1], np.int32))
    kept = ("ReducerOptions", {"KeepDims": False})
    m.output(m.node("REDUCE_MIN", [m.reshape(x, (4, 4)), constant], (4,), kept))
    path = tmp_path / "maxima.tflite"
    m.save(path)
    board = load_board("host")
    graph = simplify(load_model(path))
    setting = Setting("host", "gcc", "", "0.1.0", "nanoseconds")
    candidate = Candidate.of("generic", unroll=unroll)
    known = Records(
        Record(
            identity_of(graph, operator),
            setting,
            candidate,
            Measurement(5, 5.0),
            code=emitted(graph, operator, "host", candidate),
        )
        for operator in graph.operators
    )
    compiled = compile_model(path, board, CompileOptions(records=known))
    assert set(origins(compiled).values()) == {RECORD}
    rng = np.random.default_rng(2)
    samples = [rng.integers(-128, 128, (1, 4, 4, 4), dtype=np.int8) for _ in range(8)]
    expected = run_reference(path, [[sample] for sample in samples]).outputs
    with connect(board) as device:
        model = device.load(compiled)
        for sample, (wanted,) in zip(samples, expected, strict=True):
            assert np.asarray(model(sample)).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("odd_first", [False, True])
def test_what_does_not_suit_one_layer_of_a_shape_costs_that_layer(
    odd_first: bool, tmp_path: Path
) -> None:
    """Records know shapes; weights and scales of each layer are its own."""
    writer = ModelWriter()
    x = writer.input((1, 8, 8, 4), 0.1)
    # Of a scale above 1 the fast kernels' arithmetic is not exact.
    for weight_scale in (1.0, 0.01) if odd_first else (0.01, 1.0):
        weights = np.ones((4, 3, 3, 4), np.int8)
        x = writer.conv2d(x, weights, np.zeros(4, np.int32), weight_scale=weight_scale)
    writer.output(x)
    path = writer.save(tmp_path / "model.tflite")
    board = load_board("mps2_an500")
    graph = simplify(load_model(path))
    (key,) = {identity_of(graph, operator).key for operator in graph.operators}
    pick = Pick(Candidate.of("dsp", method="columns", rows=4), RECORD)
    assert is_possible(graph, graph.operators, board.cpu.kernel_core, pick)
    compiled = compile_model(path, board, CompileOptions(picks={key: pick}))
    odd, usual = compiled.layers if odd_first else reversed(compiled.layers)
    assert usual.origin == RECORD and odd.origin == DEFAULT
