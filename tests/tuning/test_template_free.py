"""The template-free space: what it holds, how it is searched, and how exactly it replays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import int8
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.compiler.options import STACK, CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.portable.schedules.template_free import DECISIONS, SKETCH, sketches
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records import RECORD, Measurement, Record, Records, Setting
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.searching.evolution import PROPOSALS, Evolution
from utvm_deploy.tuning.tuner import tune


def matmul(m: ModelWriter) -> None:
    a, b = m.input((2, 8, 12), 0.04, 5), m.input((2, 6, 12), 0.03, -2)
    options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": True})
    m.output(m.node("BATCH_MATMUL", [a, b], (2, 8, 6), options, scale=0.1, zero_point=1))


def transposed(m: ModelWriter) -> None:
    rng = np.random.default_rng(2)
    x = m.input((1, 4, 3, 4), 0.04, 5)
    weights = m.constant(int8(rng, 6, 3, 3, 4), [0.01] * 6)
    bias = m.constant(rng.integers(-500, 500, 6).astype(np.int32), [4e-4] * 6)
    size = m.constant(np.array([1, 8, 6, 6], np.int32))
    y = m.tensor((1, 8, 6, 6), "int8", 0.3, -4)
    options = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    m.operator("TRANSPOSE_CONV", [size, weights, x, bias], [y], ("TransposeConvOptions", options))
    m.output(y)


def convolution(m: ModelWriter) -> None:
    rng = np.random.default_rng(2)
    bias = rng.integers(-500, 500, 8, dtype=np.int32)
    m.output(m.conv2d(m.input((1, 6, 6, 4), 0.1, 5), int8(rng, 8, 3, 3, 4), bias, scale=2.0))


def maximum(m: ModelWriter) -> None:
    m.output(m.max_pool(m.input((1, 8, 8, 4), 0.1, 5), 2))


def float_dense(m: ModelWriter) -> None:
    rng = np.random.default_rng(2)
    weights = m.constant(rng.normal(size=(12, 40)).astype(np.float32))
    bias = m.constant(rng.normal(size=12).astype(np.float32))
    y = m.tensor((2, 12), "float32")
    options = ("FullyConnectedOptions", {"FusedActivationFunction": 1})
    m.operator("FULLY_CONNECTED", [m.float_input((2, 40)), weights, bias], [y], options)
    m.output(y)


MODELS = {
    "matmul": matmul,
    "transposed": transposed,
    "convolution": convolution,
    "maximum": maximum,
    "float_dense": float_dense,
}


def model(folder: Path, name: str) -> Path:
    writer = ModelWriter()
    MODELS[name](writer)
    writer.save(folder / f"{name}.tflite")
    return folder / f"{name}.tflite"


def graph_of(path: Path) -> Graph:
    return simplify(load_model(path))


def work_of(path: Path, core: str = "host") -> Work:
    (work,) = workload([graph_of(path)], core)
    return work


def proposals(work: Work, rounds: int) -> list[Candidate]:
    assert work.free is not None
    search = Evolution(work.free, 3)
    return [candidate for _ in range(rounds) for candidate in search.propose()]


def test_kernels_of_faster_families_have_none(tmp_path: Path) -> None:
    convolution_path = model(tmp_path, "convolution")
    assert work_of(convolution_path).free is not None
    assert work_of(convolution_path, "cortex-m7").free is None
    assert work_of(model(tmp_path, "transposed"), "cortex-m3").free is not None


@pytest.mark.parametrize("name", MODELS)
def test_proposals_are_of_the_space_and_differ(name: str, tmp_path: Path) -> None:
    work = work_of(model(tmp_path, name))
    found = proposals(work, 2)
    assert len(found) > PROPOSALS and len(set(found)) == len(found)
    assert found == proposals(work, 2)
    assert all(work.admits(candidate) for candidate in found)
    assert not work.admits(Candidate.of(GENERIC, sketch=99, decisions="1"))
    assert work.trials > len(work.candidates)


def test_what_is_known_guides_the_search(tmp_path: Path) -> None:
    """Of a cost that decisions decide, what is bred later is cheaper than what was drawn first."""

    def cost(candidate: Candidate) -> int:
        numbers = [part.split(".") for part in str(candidate.choice(DECISIONS)).split("/")]
        inner = [int(part[-1]) for part in numbers if len(part) > 1]
        return 1000 + sum(100 * abs(number - 2) for number in inner)

    work = work_of(model(tmp_path, "matmul"))
    assert work.free is not None
    search = Evolution(work.free, 1)
    means = []
    for _ in range(6):
        found = search.propose()
        means.append(np.mean([cost(candidate) for candidate in found]))
        for candidate in found:
            search.learn(candidate, Measurement(cost(candidate), float(cost(candidate))))
    assert np.mean(means[3:]) < means[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_record_replays_and_is_exact(name: str, tmp_path: Path) -> None:
    path = model(tmp_path, name)
    graph, board = graph_of(path), load_board("host")
    (operator,) = graph.operators
    setting = Setting("host", "gcc", "", "0.1.0", "nanoseconds")
    for candidate in proposals(work_of(path), 1)[:2]:
        kernel = identity_of(graph, operator)
        code = record_code(candidate_function(graph, operator, "host", candidate)[1])
        line = Record(kernel, setting, candidate, Measurement(5, 5.0), code=code)
        known = Records([Record.from_line(line.to_line())])
        compiled = compile_model(path, board, CompileOptions(records=known, scratch=STACK))
        (layer,) = compiled.layers
        assert layer.origin == RECORD and str(candidate.choice(DECISIONS)) in layer.why
        again = compile_model(path, board, CompileOptions(records=known, scratch=STACK))
        assert again.sources == compiled.sources
        rng = np.random.default_rng(1)
        inputs = [graph.tensors[i] for i in graph.inputs]
        given = [
            rng.normal(size=one.shape).astype(np.float32)
            if one.dtype == "float32"
            else rng.integers(-128, 128, one.shape, dtype=np.int8)
            for one in inputs
        ]
        ((expected,),) = run_reference(path, [given]).outputs
        with connect(board) as device:
            found = device.load(compiled)(*given)
        assert np.asarray(found).tobytes() == expected.tobytes(), candidate.label


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({SKETCH: 99, DECISIONS: "1"}, "has no sketch 99; it has [1-9]"),
        ({SKETCH: "0", DECISIONS: "1"}, "sketch=0 is not an integer"),
        ({SKETCH: -1, DECISIONS: "1"}, "sketch=-1 is less than 0"),
        ({SKETCH: 0}, "it has no decisions"),
        ({SKETCH: 0, DECISIONS: "x"}, "'x' are not the decisions of sketch 0"),
        ({SKETCH: 0, DECISIONS: ""}, "'' are not the decisions of sketch 0"),
        ({SKETCH: 0, DECISIONS: "2.1.1/8.1.1/6.1.1/99"}, "TVM refuses 2.1.1/8.1.1/6.1.1/99"),
        ({SKETCH: 0, DECISIONS: "2.1.1/8.1.1/7.1.1/0"}, "are not the decisions of sketch 0"),
        (
            {SKETCH: 0, DECISIONS: "2.1.1/8.1.1/6.1.1/0", "tile": "1x1"},
            "there is no choice 'tile'; the choices are: sketch, decisions",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    choices: dict[str, int | str], reason: str, tmp_path: Path
) -> None:
    graph = graph_of(model(tmp_path, "matmul"))
    (operator,) = graph.operators
    good = Candidate.of(GENERIC, sketch=0, decisions="2.1.1/8.1.1/6.1.1/0")
    assert lower(graph, operator, "host", good).kernel != lower(graph, operator).kernel
    with pytest.raises(UnsupportedOperator, match=f"no kernel 'generic .*{reason}"):
        lower(graph, operator, "host", Candidate.of(GENERIC, **choices))


def test_sketches_are_data(tmp_path: Path) -> None:
    graph = graph_of(model(tmp_path, "convolution"))
    found = sketches(lower(graph, graph.operators[0]).kernel)
    assert len(found) > 1
    assert all(json.loads(json.dumps(one.instructions)) == one.instructions for one in found)


@pytest.mark.parametrize("name", ["host", pytest.param("mps2_an386", marks=pytest.mark.emulator)])
def test_tuning_tries_them(name: str, tmp_path: Path) -> None:
    board = load_board(name)
    works = [work_of(model(tmp_path, "matmul"), board.cpu.core)]
    with connect(board) as device, RecordsFile(tmp_path / "r.jsonl") as file:
        found = tune(works, device, file, trials=20)
        recorded = list(file.records)
    assert found.trials == len(recorded) == 20
    free = [record for record in recorded if record.candidate.choice(SKETCH) is not None]
    assert len(free) > 5
    assert all(record.measurement.is_ok for record in recorded)
