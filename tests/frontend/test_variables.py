"""Variables of a file: what becomes state, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_models import join, ring_buffer
from tflite_serializer import serialize
from tflite_writer import ModelWriter, call_once

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.oracle.reference import run_reference

SHAPE = (1, 2, 1, 3)
ZEROS = np.zeros(SHAPE, np.int8)


def imported(m: ModelWriter, folder: Path) -> Graph:
    return simplify(load_model(m.save(folder / "model.tflite")))


def test_a_ring_buffer(tmp_path: Path) -> None:
    m = ModelWriter()
    first = np.arange(6, dtype=np.int8).reshape(SHAPE)
    m.output(ring_buffer(m, m.input((1, 1, 1, 3)), first))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    ((found, left),) = graph.states
    np.testing.assert_array_equal(graph.tensors[found].first, first)
    assert graph.tensors[left].first is None
    assert graph.operators[-1].kind == "ASSIGN_VARIABLE"


def test_what_is_never_assigned_is_a_constant(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input(SHAPE)
    kept = m.read(m.variable("kept", ZEROS + 3, 0.1), SHAPE)
    m.output(join(m, x, kept))
    graph = imported(m, tmp_path)
    assert not graph.states and [o.kind for o in graph.operators] == ["CONCATENATION"]


def test_what_is_read_after_an_assignment_is_no_state(tmp_path: Path) -> None:
    """Also of a variable without a first value."""
    m = ModelWriter()
    x = m.input(SHAPE)
    handle = m.handle("passed")
    m.assign(handle, x)
    m.output(join(m, m.read(m.handle("passed"), SHAPE), x))
    graph = imported(m, tmp_path)
    assert not graph.states and graph.operators[-1].inputs == (graph.inputs[0],) * 2


def test_what_is_only_assigned_is_gone(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input(SHAPE)
    m.assign(m.variable("unread", ZEROS, 0.1), x)
    m.output(m.relu(x))
    graph = imported(m, tmp_path)
    assert not graph.states and [o.kind for o in graph.operators] == ["RELU"]


def initializer(**first: np.ndarray) -> ModelWriter:
    """A subgraph that assigns variables by their names."""
    m = ModelWriter()
    for name, value in first.items():
        m.assign(m.handle(name), m.constant(value, 0.1))
    return m


def two_initializers(calls: tuple[int, ...]) -> ModelWriter:
    """What two variables hold together, which two subgraphs initialize, and then what came in."""
    m = ModelWriter()
    x = m.input(SHAPE)
    m.once = initializer(one=ZEROS + 1, two=ZEROS + 2)
    m.further.append(initializer(two=ZEROS + 3))
    m.operators += map(call_once, calls)
    one, two = (m.handle(name) for name in ("one", "two"))
    m.output(join(m, m.read(one, SHAPE), m.read(two, SHAPE)))
    m.assign(one, x)
    m.assign(two, x)
    return m


@pytest.mark.tools
@pytest.mark.parametrize(
    ("calls", "second"), [((1, 2), 3), ((2, 1), 2), ((2, 1, 2), 2), ((1, 1, 2), 3)]
)
def test_several_subgraphs_initialize(calls: tuple[int, ...], second: int, tmp_path: Path) -> None:
    """They run in the order of their first calls, and each runs once, as in the reference."""
    m = two_initializers(calls)
    path = m.save(tmp_path / "model.tflite")
    graph = simplify(load_model(path))
    firsts = {graph.tensors[found].name: graph.tensors[found].first for found, _ in graph.states}
    np.testing.assert_array_equal(firsts["one"], ZEROS + 1)
    np.testing.assert_array_equal(firsts["two"], ZEROS + second)
    # The reference runs the subgraphs themselves; all elements of a variable are equal.
    (made,) = run_reference(path, [ZEROS]).outputs[0]
    assert sorted(set(made.reshape(-1).tolist())) == [1, second]


def test_one_of_several_subgraphs_is_not_called(tmp_path: Path) -> None:
    m = two_initializers((1,))
    with pytest.raises(ModelError, match="the model has 3 subgraphs; only"):
        load_model(m.save(tmp_path / "model.tflite"))


def read_before_assigned(m: ModelWriter, x: int) -> None:
    handle = m.handle("early")
    m.output(m.read(handle, SHAPE))
    m.assign(handle, x)


def uninitialized_beside_another(m: ModelWriter, x: int) -> None:
    m.variable("other", ZEROS, 0.1)
    read_before_assigned(m, x)


def no_handle(m: ModelWriter, x: int) -> None:
    m.variable("states", ZEROS, 0.1)
    m.output(m.read(m.tensor((), "resource"), SHAPE))


def handle_of_a_wrong_type(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.tensors[handle].dtype = "int32"
    m.output(m.read(handle, SHAPE))


def read_of_an_activation(m: ModelWriter, x: int) -> None:
    m.variable("states", ZEROS, 0.1)
    m.output(m.read(x, SHAPE))


def two_names(m: ModelWriter, x: int) -> None:
    handle = m.variable("one", ZEROS, 0.1)
    m.operators[-1].outputs = [handle]
    m.variable("two", ZEROS, 0.1)
    m.operators[-1].outputs = [handle]
    m.output(m.read(handle, SHAPE))


def handle_as_a_value(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.output(m.reshape(handle, (1,)) if m.tensors[handle].scales else _moved(m, handle))


def _moved(m: ModelWriter, handle: int) -> int:
    shape = m.constant(np.array([1], np.int32))
    return m.node("RESHAPE", [handle, shape], (1,), ("ReshapeOptions", {}))


def another_shape(m: ModelWriter, x: int) -> None:
    m.output(m.read(m.variable("states", np.zeros((1, 5), np.int8), 0.1), SHAPE))


def another_type(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.output(m.read(handle, SHAPE))
    m.assign(handle, m.constant(np.zeros(SHAPE, np.int16), 0.1))


def no_subgraph(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.operators.insert(0, call_once())
    m.once = None
    m.output(m.read(handle, SHAPE))


def another_subgraph(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.operators.insert(0, call_once())
    m.operators[0].options = ("CallOnceOptions", {"InitSubgraphIndex": 0})
    m.output(m.read(handle, SHAPE))


def computing_subgraph(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    assert m.once is not None
    m.once.node("RELU", [0], SHAPE)
    m.output(m.read(handle, SHAPE))


def computed_first_value(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    assert m.once is not None
    m.once.tensors[m.once.operators[-1].inputs[1]].data = None
    m.output(m.read(handle, SHAPE))


def called_late(m: ModelWriter, x: int) -> None:
    handle = m.variable("states", ZEROS, 0.1)
    m.assign(handle, x)
    m.operators.append(call_once())
    m.output(m.read(handle, SHAPE))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (read_before_assigned, "'early' is read before anything is assigned to it"),
        (uninitialized_beside_another, "'early' is read before anything is assigned to it"),
        (no_handle, "names no variable; VAR_HANDLE must make it before"),
        (handle_of_a_wrong_type, "is int32, which names no variable"),
        (read_of_an_activation, "names no variable; VAR_HANDLE must make it before"),
        (two_names, "names another variable already"),
        (handle_as_a_value, "is resource; only int8"),
        (another_shape, r"is int8 of shape \(1, 5\), but"),
        (another_type, "is int16 of shape"),
        (no_subgraph, "it calls subgraph 1, which the file does not have"),
        (another_subgraph, "it calls subgraph 0, which"),
        (computing_subgraph, r"in the subgraph that it calls, operator 2 \(RELU\)"),
        (computed_first_value, "which is not a constant"),
        (called_late, "it must come first"),
    ],
)
def test_is_refused(build: Callable[[ModelWriter, int], None], said: str, tmp_path: Path) -> None:
    m = ModelWriter()
    build(m, m.input(SHAPE))
    with pytest.raises(ModelError, match=said) as caught:
        load_model(m.save(tmp_path / "model.tflite"))
    assert "\n" not in str(caught.value)


def test_a_second_subgraph_that_is_not_called(tmp_path: Path) -> None:
    """As control flow has it."""
    m = ModelWriter()
    m.output(m.relu(m.input(SHAPE)))
    m.once = ModelWriter()
    path = tmp_path / "model.tflite"
    path.write_bytes(serialize(m))
    with pytest.raises(ModelError, match="the model has 2 subgraphs; only"):
        load_model(path)
