"""WHILE and IF are written out; the reference runs the file as it is, and says if that is right."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import int8, ring_buffer, sample_inputs
from tflite_writer import ModelWriter, call_once

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend import flat_model
from utvm_deploy.frontend.tflite import load_model, survey_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.oracle.reference import run_reference

SCALE = 0.1
FUSED = {"FusedActivationFunction": 0}
ROW = (1, 4)


def ints(m: ModelWriter, *values: object) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def state(m: ModelWriter, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Inputs of a subgraph: a counter, and int8 tensors."""
    m.inputs.append(m.tensor((), "int32"))
    return m.inputs[0], *(m.input(shape, SCALE) for shape in shapes)


def counting(m: ModelWriter, counter: int, step: int = 1) -> int:
    return m.node("ADD", [counter, *ints(m, step)], (), ("AddOptions", FUSED))


def until(count: int, *shapes: tuple[int, ...], kind: str = "LESS") -> ModelWriter:
    """A condition: the counter is below ``count``."""
    m = ModelWriter()
    counter, *_ = state(m, *shapes)
    m.output(m.node(kind, [counter, *ints(m, count)], (), dtype="bool"))
    return m


def dense(m: ModelWriter, x: int, seed: int) -> int:
    weights = int8(np.random.default_rng(seed), 4, 4)
    return m.fully_connected(x, weights, weight_scale=0.004, scale=SCALE)


def loop(m: ModelWriter, given: list[int], cond: ModelWriter, body: ModelWriter) -> list[int]:
    """WHILE in the main subgraph; what it makes is like what it takes."""
    m.further += [cond, body]
    outputs = [m.tensor(m.tensors[i].shape, m.tensors[i].dtype, SCALE) for i in given]
    m.tensors[outputs[0]].scales = m.tensors[outputs[0]].zero_points = ()
    last = len(m.further) + (m.once is not None)
    numbers = {"CondSubgraphIndex": last - 1, "BodySubgraphIndex": last}
    m.operator("WHILE", given, outputs, ("WhileOptions", numbers))
    return outputs


def right(m: ModelWriter, folder: Path) -> Graph:
    """The simplified graph, which computes what the reference makes of the file itself."""
    path = m.save(folder / "model.tflite")
    graph = load_model(path)
    inputs = sample_inputs(m)
    run = run_reference(path, [inputs])
    made = run_graph(graph, inputs)
    for number, expected in zip(graph.outputs, run.outputs[0], strict=True):
        np.testing.assert_array_equal(made[number], expected)
    assert all(t.source in run.tensors[0] for t in graph.tensors if t.data is None)
    return simplify(graph)


def recurrent(steps: int) -> ModelWriter:
    """A list of states, as TensorFlow writes it: rows before, the new one, and those behind."""
    m, rows = ModelWriter(), (steps, *ROW)
    x = m.input(rows, SCALE)
    body = ModelWriter()
    i, old, states, given = state(body, ROW, rows, rows)
    after = counting(body, i)
    row = body.node("GATHER", [given, i], ROW, ("GatherOptions", {"Axis": 0}))
    new = body.add(dense(body, old, 1), row, scale=SCALE)

    def bounds(counter: int, rest: int) -> int:
        one = body.node("RESHAPE", [counter, *ints(body, [1])], (1,))
        options = ("ConcatenationOptions", {"Axis": 0, **FUSED})
        return body.node("CONCATENATION", [one, *ints(body, [rest] * 2)], (3,), options)

    before = body.node("SLICE", [states, *ints(body, [0] * 3), bounds(i, -1)], (1, *ROW))
    behind = body.node("SLICE", [states, bounds(after, 0), *ints(body, [-1] * 3)], (1, *ROW))
    for number in (before, behind):
        body.tensors[number].signature = (-1, *ROW)
    parts = [before, body.reshape(new, (1, *ROW)), behind]
    options = ("ConcatenationOptions", {"Axis": 0, **FUSED})
    body.output(after, new, body.node("CONCATENATION", parts, rows, options), given)
    first = m.constant(np.zeros(ROW, np.int8), SCALE)
    empty = m.constant(np.zeros(rows, np.int8), SCALE)
    given = [*ints(m, 0), first, empty, x]
    _, last, states, _ = loop(m, given, until(steps, ROW, rows, rows), body)
    m.output(last, states)
    return m


def test_a_recurrent_cell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        graph = right(recurrent(5), tmp_path)
    # The list is made once, of the steps themselves, and the first step knows its product.
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("CONCATENATION") == 1 and kinds.count("SLICE") == 0
    dense_ones = [op for op in graph.operators if op.kind == "FULLY_CONNECTED"]
    assert len(dense_ones) == 5 and len({op.inputs[1] for op in dense_ones}) == 1
    assert "WHILE of 5 steps" in caplog.text and "in flash once" in caplog.text
    assert "(step 3)" in " ".join(tensor.name for tensor in graph.tensors)


def test_branches_and_loops_in_loops(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input(ROW, SCALE)
    even, odd = ModelWriter(), ModelWriter()
    for branch, seed in ((even, 2), (odd, 3)):
        branch.output(dense(branch, branch.input(ROW, SCALE), seed))
    inner = ModelWriter()
    i, old = state(inner, ROW)
    inner.output(counting(inner, i, 2), inner.relu(dense(inner, old, 4), scale=SCALE))
    body = ModelWriter()
    i, old = state(body, ROW)
    rest = body.node("FLOOR_MOD", [i, *ints(body, 2)], ())
    is_even = body.node("EQUAL", [rest, *ints(body, 0)], (), dtype="bool")
    one = body.tensor(ROW, "int8", SCALE)
    numbers = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    body.operator("IF", [is_even, old], [one], ("IfOptions", numbers))
    m.further += [even, odd, until(3, ROW, kind="LESS_EQUAL"), inner]
    two = body.tensor(ROW, "int8", SCALE)
    numbers = {"CondSubgraphIndex": 3, "BodySubgraphIndex": 4}
    body.operator("WHILE", [*ints(body, 0), one], [body.tensor((), "int32"), two])
    body.operators[-1].options = ("WhileOptions", numbers)
    body.output(counting(body, i), two)
    _, last = loop(m, [*ints(m, 0), x], until(3, ROW), body)
    m.output(last)
    graph = right(m, tmp_path)
    weights = [op.inputs[1] for op in graph.operators if op.kind == "FULLY_CONNECTED"]
    assert len(weights) == 3 * (1 + 2) and len(set(weights)) == 3


def test_outputs_that_are_inputs_constants_and_the_same(tmp_path: Path) -> None:
    """Also no step at all, and an output of the loop that nothing else reads."""
    m = ModelWriter()
    x = m.input(ROW, SCALE)
    body = ModelWriter()
    i, old = state(body, ROW)
    body.output(counting(body, i), dense(body, old, 1))
    _, same = loop(m, [*ints(m, 7), x], until(3, ROW), body)
    body = ModelWriter()
    i, old = state(body, ROW)
    body.output(counting(body, i), body.relu(old, scale=SCALE))
    _, last = loop(m, [*ints(m, 0), x], until(2, ROW), body)
    m.output(same, last, last)
    right(m, tmp_path)


def test_float_counters(tmp_path: Path) -> None:
    m, cond, body = ModelWriter(), ModelWriter(), ModelWriter()
    x = m.input(ROW, SCALE)
    for one in (cond, body):
        one.inputs.append(one.tensor((), "float32"))
        one.input(ROW, SCALE)
    half = np.array(0.5, np.float32)
    limit = cond.constant(3 * half)
    cond.output(cond.node("LESS", [0, limit], (), dtype="bool"))
    after = body.node("ADD", [0, body.constant(half)], (), ("AddOptions", FUSED))
    body.output(after, dense(body, 1, 1))
    m.output(loop(m, [m.constant(0 * half), x], cond, body)[1])
    kinds = [operator.kind for operator in right(m, tmp_path).operators]
    assert kinds == ["FULLY_CONNECTED"] * 3


def test_variables_beside_a_loop(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 1, *ROW), SCALE)
    joined = ring_buffer(m, x, np.arange(8, dtype=np.int8).reshape(1, 2, *ROW))
    row = m.reshape(m.node("SLICE", [joined, *ints(m, [0] * 4, [1, 1, 1, 4])], (1, 1, 1, 4)), ROW)
    body = ModelWriter()
    i, old = state(body, ROW)
    body.output(counting(body, i), dense(body, old, 1))
    _, last = loop(m, [*ints(m, 0), row], until(2, ROW), body)
    m.output(last)
    m.operators.insert(0, call_once())
    path = m.save(tmp_path / "model.tflite")
    run_reference(path, [sample_inputs(m, seed) for seed in range(3)])  # raises if they differ
    assert len(load_model(path).states) == 1


def dependent(kind: str) -> ModelWriter:
    """A loop whose end, or a branch whose condition, is computed from the input."""
    m = ModelWriter()
    x = m.input(ROW, SCALE)
    if kind == "WHILE":
        cond, body = ModelWriter(), ModelWriter()
        for one in (cond, body):
            state(one, ROW)
        least = cond.node("REDUCE_MAX", [1, *ints(cond, [0, 1])], (), ("ReducerOptions", {}))
        limit = cond.constant(np.array(3, np.int8), SCALE)
        cond.output(cond.node("LESS", [least, limit], (), dtype="bool"))
        body.output(counting(body, 0), dense(body, 1, 1))
        m.output(loop(m, [*ints(m, 0), x], cond, body)[1])
        return m
    least = m.node("REDUCE_MAX", [x, *ints(m, [0, 1])], (), ("ReducerOptions", {}))
    limit = m.constant(np.array(3, np.int8), SCALE)
    is_less = m.node("LESS", [least, limit], (), dtype="bool")
    for seed in (1, 2):
        branch = ModelWriter()
        branch.output(dense(branch, branch.input(ROW, SCALE), seed))
        m.further.append(branch)
    made = m.tensor(ROW, "int8", SCALE)
    numbers = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    m.operator("IF", [is_less, x], [made], ("IfOptions", numbers))
    m.output(made)
    return m


def swapping() -> ModelWriter:
    m, body = ModelWriter(), ModelWriter()
    i, one, two = state(body, ROW, ROW)
    body.output(counting(body, i), two, one)
    given = [*ints(m, 0), m.input(ROW, SCALE), m.input(ROW, SCALE)]
    m.output(*loop(m, given, until(3, ROW, ROW), body)[1:])
    return m


def calling_itself() -> ModelWriter:
    m, body = ModelWriter(), ModelWriter()
    i, old = state(body, ROW)
    inner = [body.tensor((), "int32"), body.tensor(ROW, "int8", SCALE)]
    numbers = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    body.operator("WHILE", [i, old], inner, ("WhileOptions", numbers))
    body.output(*inner)
    m.output(loop(m, [*ints(m, 0), m.input(ROW, SCALE)], until(3, ROW), body)[1])
    return m


def endless() -> ModelWriter:
    m, body = ModelWriter(), ModelWriter()
    i, old = state(body, ROW)
    body.output(counting(body, i, 0), old)
    m.output(loop(m, [*ints(m, 0), m.input(ROW, SCALE)], until(3, ROW), body)[1])
    return m


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: dependent("WHILE"), r"operator 0 \(WHILE\).*how many steps .* depends on data"),
        (lambda: dependent("IF"), r"operator 2 \(IF\).*which branch .* depends on data.*tf\.where"),
        (swapping, "passes input 1 on as output 2"),
        (calling_itself, "subgraph 2 is missing, or calls itself"),
        (endless, "unrolled, its loops are larger"),
    ],
)
def test_refusals(
    build: Callable[[], ModelWriter],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flat_model, "_OPERATOR", 1 << 16)  # less to wait for
    path = build().save(tmp_path / "model.tflite")
    with pytest.raises(ModelError, match=told) as refusal:
        load_model(path)
    survey = survey_model(path, refusal.value)
    assert any(op.kind in ("WHILE", "IF") and op.problem for op in survey.operators)


def test_too_many_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_model, "MAX_OPERATORS", 10)
    with pytest.raises(ModelError, match=r"larger than a model may be .10 operators.*export fewer"):
        load_model(recurrent(5).save(tmp_path / "model.tflite"))


def test_keras_3(shared_models: Path) -> None:
    """A stack of two LSTMs over 20 steps, as Keras 3 and TensorFlow's converter wrote it."""
    path = shared_models / "found" / "lstm_k3_f.tflite"
    graph = load_model(path)
    x = np.random.default_rng(1).standard_normal((1, 20, 8)).astype(np.float32)
    run_reference(path, [x])  # raises if the file itself makes something else
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("FULLY_CONNECTED") == 2 * 2 * 20 + 1 and "WHILE" not in kinds
    weights = {op.inputs[1] for op in graph.operators if op.kind == "FULLY_CONNECTED"}
    assert len(weights) == 2 * 2 + 1
