"""Slices and joins that need no code: played through, in whole models, and what they save."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_plan import step, tensor
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.plan import Step, View, plan_arena
from utvm_deploy.compiler.arena.views import with_views
from utvm_deploy.device import Device
from utvm_deploy.graph.attributes import Add, Attributes, Concatenation, Rearrange, Reshape
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.oracle.reference import run_reference

CLAMP = (-128, 127)


def random_graph(seed: int) -> Graph:
    """Operators that compute, slice, join and rename, on rows of 16 bytes."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 6)) * 16 for _ in range(int(rng.integers(1, 3)))]
    inputs = tuple(range(len(sizes)))
    operators: list[Operator] = []

    def make(kind: str, sources: tuple[int, ...], size: int, attributes: Attributes) -> None:
        operators.append(Operator(kind, sources, (len(sizes),), attributes, ()))
        sizes.append(size)

    for _ in range(int(rng.integers(3, 14))):
        recent = max(0, len(sizes) - 4)
        low = recent if rng.random() < 0.7 else 0
        sources = tuple(int(i) for i in rng.integers(low, len(sizes), rng.integers(1, 4)))
        size, kind = sizes[sources[0]], rng.random()
        if kind < 0.3 and size > 16:
            rows = size // 16
            start = int(rng.integers(0, rows))
            count = int(rng.integers(1, rows - start + 1)) * 16
            run = tuple(range(start * 16, start * 16 + count))
            make("SLICE", sources[:1], count, Rearrange((size,), (run,), (0,), (count,)))
        elif kind < 0.55 and len(sources) > 1:
            total = sum(sizes[i] for i in sources)
            make("CONCATENATION", sources, total, Concatenation(0))
        elif kind < 0.65:
            make("RESHAPE", sources[:1], size, Reshape())
        else:
            made = size if rng.random() < 0.7 else int(rng.integers(1, 6)) * 16
            make("ADD", sources[:2], made, Add(CLAMP))
    outputs = {operators[-1].outputs[0]}
    outputs |= {o.outputs[0] for o in operators if rng.random() < 0.15}
    tensors = tuple(replace(tensor(size), name=f"t{i}") for i, size in enumerate(sizes))
    return Graph("random", tensors, tuple(operators), inputs, tuple(sorted(outputs)), "00")


def step_of(graph: Graph) -> Callable[[Operator], Step]:
    def made(operator: Operator) -> Step:
        (result,) = operator.outputs
        size = graph.tensors[result].size_bytes
        marks = [
            (result, source)
            for source in operator.inputs
            if source is not None
            and operator.kind == "ADD"
            and graph.tensors[source].size_bytes >= size
        ]
        return step(operator, *marks)

    return made


def values_of(graph: Graph, operator: Operator, arrays: list[np.ndarray], mark: int) -> np.ndarray:
    a = operator.attributes
    if isinstance(a, Rearrange):
        return arrays[0][list(a.indices[0])]
    if isinstance(a, Concatenation):
        return np.concatenate(arrays)
    if isinstance(a, Reshape):
        return arrays[0]
    size = graph.tensors[operator.outputs[0]].size_bytes
    return np.arange(size) + 1000 * mark  # whatever it computes: numbers of its own


def play(graph: Graph) -> tuple[int, int]:
    """Run the graph in the arena and beside it; how many views of slices and of joins it has."""
    sequence = with_views(graph, step_of(graph))
    plan = plan_arena(graph, sequence)
    arena = np.full(plan.arena_bytes, -1)
    true: dict[int, np.ndarray] = {}

    def place(number: int) -> slice:
        start = plan.tensors[number]
        assert start % 16 == 0
        return slice(start, start + graph.tensors[number].size_bytes)

    for number in graph.inputs:
        true[number] = np.arange(graph.tensors[number].size_bytes) - 1000 * (number + 1)
        arena[place(number)] = true[number]
    for mark, operator in enumerate(graph.operators, 1):
        items = [item for item in sequence if item.operator is operator]
        inputs = [number for number in operator.inputs if number is not None]
        true[operator.outputs[0]] = values_of(graph, operator, [true[i] for i in inputs], mark)
        if isinstance(items[0], Step):
            for number in inputs:
                assert (arena[place(number)] == true[number]).all(), (operator, number)
            arena[place(operator.outputs[0])] = true[operator.outputs[0]]
    for number in graph.outputs:
        assert (arena[place(number)] == true[number]).all()
    views = [item for item in sequence if isinstance(item, View)]
    kinds = [view.operator.kind for view in views]
    return kinds.count("SLICE"), kinds.count("CONCATENATION")


def kinds_of(shapes: list[tuple[int, ...]], *operators: Operator, outputs: int) -> list[type]:
    """What each operator is, a step or a view; tensor 0 is the input."""
    tensors = tuple(replace(tensor(1), shape=shape) for shape in shapes)
    graph = Graph("small", tensors, operators, (0,), (outputs,), "00")
    return [type(item) for item in with_views(graph, step_of(graph))]


@pytest.mark.parametrize(("start", "kind"), [(16, View), (8, Step), (17, Step)])
def test_a_view_begins_aligned(start: int, kind: type) -> None:
    run = Rearrange((64,), (tuple(range(start, start + 32)),), (0,), (32,))
    made = kinds_of(
        [(64,), (64,), (32,), (32,)],
        Operator("ADD", (0, 0), (1,), Add(CLAMP), ()),
        Operator("SLICE", (1,), (2,), run, ()),
        Operator("ADD", (2, 2), (3,), Add(CLAMP), ()),
        outputs=3,
    )
    assert made == [Step, kind, Step]


def test_an_output_is_no_part_of_the_input() -> None:
    """Who takes the outputs may write the next inputs before."""
    run = Rearrange((64,), (tuple(range(16, 48)),), (0,), (32,))
    assert kinds_of([(64,), (32,)], Operator("SLICE", (0,), (1,), run, ()), outputs=1) == [Step]


@pytest.mark.parametrize(("axis", "kind"), [(0, View), (1, Step)])
def test_parts_of_an_inner_concatenation_are_copied(axis: int, kind: type) -> None:
    whole = (4, 16) if axis == 0 else (2, 32)
    made = kinds_of(
        [(2, 16), (2, 16), (2, 16), whole, whole],
        Operator("ADD", (0, 0), (1,), Add(CLAMP), ()),
        Operator("ADD", (0, 0), (2,), Add(CLAMP), ()),
        Operator("CONCATENATION", (1, 2), (3,), Concatenation(axis), ()),
        Operator("ADD", (3, 3), (4,), Add(CLAMP), ()),
        outputs=4,
    )
    assert made[:2] == [Step, Step] and set(made[2:-1]) == {kind}


def test_played_through_no_byte_is_lost() -> None:
    slices, joins = np.sum([play(random_graph(seed)) for seed in range(250)], axis=0)
    assert slices > 100 and joins > 60, "hardly any views, so this proves little"


def test_the_arena_does_not_grow() -> None:
    for seed in range(80):
        graph = random_graph(seed)
        of = step_of(graph)
        copied = tuple(
            View(o, o.inputs[0], o.outputs[0])
            if o.kind == "RESHAPE" and o.inputs[0] is not None
            else of(o)
            for o in graph.operators
        )
        assert (
            plan_arena(graph, with_views(graph, of)).arena_bytes
            <= plan_arena(graph, copied).arena_bytes
        )


def _heads(m: ModelWriter) -> None:
    """Two heads of a detector, one of them read once more behind the join; a slice of the join."""
    rng = np.random.default_rng(1)
    x = m.input((1, 8, 8, 4), 0.05, -7)
    weights = rng.integers(-127, 128, (4, 1, 1, 4)).astype(np.int8)
    bias = np.zeros(4, np.int32)
    rows = []
    for stride in (1, 2):
        y = m.conv2d(x, weights, bias, stride=stride, scale=0.5, zero_point=3)
        rows.append(m.reshape(y, (1, 64 // stride**2, 4)))
    options = ("ConcatenationOptions", {"Axis": 1})
    joined = m.node("CONCATENATION", rows, (1, 80, 4), options)
    m.output(m.relu(joined, scale=0.5, zero_point=3))
    m.output(m.relu6(rows[0], scale=0.5, zero_point=3))
    cut = [m.constant(np.array(v, np.int32)) for v in ([0, 60, 0], [1, 8, 4])]
    m.output(m.node("SLICE", [joined, *cut], (1, 8, 4), ("SliceOptions", {})))


def _twice(m: ModelWriter) -> None:
    """The same tensor twice in a join, and joins of what is joined, sliced or a constant."""
    x = m.input((2, 16), 0.05, -7)
    y = m.relu(x, scale=0.05, zero_point=-7)
    options = ("ConcatenationOptions", {"Axis": 0})
    both = m.node("CONCATENATION", [y, y], (4, 16), options)
    more = m.node("CONCATENATION", [both, m.relu(y, scale=0.05, zero_point=-7)], (6, 16), options)
    fixed = m.constant(np.arange(32, dtype=np.int8).reshape(2, 16), 0.05, -7)
    m.output(m.node("CONCATENATION", [more, fixed], (8, 16), options))
    parts = [m.tensor((1, 16), "int8", 0.05, -7) for _ in range(6)]
    axis = m.constant(np.array(0, np.int32))
    m.operator("SPLIT", [axis, more], parts, ("SplitOptions", {"NumSplits": 6}))
    m.output(m.node("CONCATENATION", parts[::-1], (6, 16), options))


def _steps(m: ModelWriter) -> None:
    """Every step of a sequence on its own, the last one as an output too."""
    x = m.relu(m.input((1, 4, 32), 0.05, -7), scale=0.05, zero_point=-7)
    parts = [m.tensor((1, 32), "int8", 0.05, -7) for _ in range(4)]
    m.operator("UNPACK", [x], parts, ("UnpackOptions", {"Num": 4, "Axis": 1}))
    total = parts[0]
    for part in parts[1:]:
        total = m.add(total, part, scale=0.1)
    m.output(total, parts[3])
    m.output(m.node("PACK", [total, m.relu(parts[1])], (1, 2, 32), None, dtype="int8"))
    m.operators[-1].options = ("PackOptions", {"ValuesCount": 2, "Axis": 1})


MODELS = (_heads, _twice, _steps)


@pytest.mark.spread(1)
@pytest.mark.parametrize("build", MODELS)
def test_models_with_views_are_byte_exact(
    build: Callable[[ModelWriter], None], device: Device, tmp_path: Path
) -> None:
    m = ModelWriter()
    build(m)
    path = m.save(tmp_path / "views.tflite")
    rng = np.random.default_rng(2)
    samples = [
        [rng.integers(-128, 128, m.tensors[i].shape).astype(np.int8) for i in m.inputs]
        for _ in range(3)
    ]
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    for sample, expected in zip(samples, run_reference(path, samples).outputs, strict=True):
        made = model(*sample)
        made = made if isinstance(made, tuple | list) else [made]
        for ours, theirs in zip(made, expected, strict=True):
            assert np.asarray(ours).tobytes() == theirs.tobytes()


def test_what_is_no_code(tmp_path: Path) -> None:
    def layers(build: Callable[[ModelWriter], None]) -> list[str]:
        m = ModelWriter()
        build(m)
        path = m.save(tmp_path / "views.tflite")
        compiled = utvm_deploy.compile(path, load_board("host"))
        return sorted(layer.kind for layer in compiled.layers)

    assert layers(_heads) == ["CONV_2D", "CONV_2D", "RELU", "RELU6"]
    assert layers(_steps).count("UNPACK") == 0
