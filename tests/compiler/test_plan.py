"""The arena plan of whole graphs, checked by playing the graph through on marked bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.arena.plan import ArenaPlan, Step, View, is_view, plan_arena
from utvm_deploy.compiler.arena.plan_check import verify_sharing
from utvm_deploy.graph.attributes import Add, Relu, Reshape
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument

CLAMP = (-128, 127)


@dataclass(frozen=True)
class NoKernel:
    """The planner never looks at it."""

    name: str = "none"

    def prim_func(self) -> Any:
        raise AssertionError

    def schedule(self, sch: Any, core: str) -> str:
        raise AssertionError


def tensor(size: int, data: bool = False) -> Tensor:
    return Tensor("t", (size,), "int8", data=np.zeros(size, np.int8) if data else None)


def step(operator: Operator, *in_place: tuple[int, int], scratch: tuple[int, ...] = ()) -> Step:
    arguments = [TensorArgument(i) for i in (*operator.inputs, *operator.outputs) if i is not None]
    return Step(operator, KernelCall(NoKernel(), tuple(arguments), in_place), scratch)


def operator(kind: str, inputs: tuple[int, ...], *outputs: int) -> Operator:
    attributes = {"ADD": Add(CLAMP), "RELU": Relu(CLAMP), "RESHAPE": Reshape()}[kind]
    return Operator(kind, inputs, outputs, attributes, ())


def random_case(seed: int) -> tuple[Graph, list[Step | View]]:
    """A graph of unary, binary, two-output and view operators over tensors of odd sizes."""
    rng = np.random.default_rng(seed)
    tensors = [tensor(int(rng.integers(1, 300))) for _ in range(int(rng.integers(1, 4)))]
    inputs = tuple(range(len(tensors)))
    operators: list[Operator] = []
    sequence: list[Step | View] = []
    for _ in range(int(rng.integers(1, 14))):
        # Mostly the newest tensors, at times a much older one: a shortcut.
        recent = max(0, len(tensors) - 3)
        low = recent if rng.random() < 0.7 else 0
        sources = tuple(int(i) for i in rng.integers(low, len(tensors), rng.integers(1, 3)))
        size = tensors[sources[0]].size_bytes
        if rng.random() < 0.25:
            tensors.append(tensor(size))
            made = operator("RESHAPE", sources[:1], len(tensors) - 1)
            sequence.append(View(made, sources[0], len(tensors) - 1))
        else:
            sizes = [size if rng.random() < 0.6 else int(rng.integers(1, 300))]
            sizes += [int(rng.integers(1, 300))] * int(rng.random() < 0.2)
            tensors += [tensor(s) for s in sizes]
            results = tuple(range(len(tensors) - len(sizes), len(tensors)))
            made = operator("ADD", sources, *results)
            marks = [(results[0], s) for s in sources if tensors[s].size_bytes >= sizes[0]]
            scratch = tuple(int(s) for s in rng.integers(1, 200, rng.integers(0, 3)))
            sequence.append(step(made, *marks, scratch=scratch))
        operators.append(made)
    produced = [i for made in operators for i in made.outputs]
    outputs = sorted({produced[-1], *(i for i in produced if rng.random() < 0.15)})
    graph = Graph("random", tuple(tensors), tuple(operators), inputs, tuple(outputs), "00")
    return graph, sequence


def play(graph: Graph, sequence: list[Step | View], plan: ArenaPlan) -> int:
    """Write marks where the plan says and see that every read finds them; counts reuse in place."""
    arena = np.full(plan.arena_bytes, -1)
    value = list(range(len(graph.tensors)))
    in_place = 0

    def bytes_of(number: int) -> np.ndarray:
        start = plan.tensors[number]
        view = arena[start : start + graph.tensors[number].size_bytes]
        assert view.size == graph.tensors[number].size_bytes
        return view

    for number in graph.inputs:
        bytes_of(number)[:] = number
    position = 0
    for item in sequence:
        if isinstance(item, View):
            value[item.result] = value[item.source]
            continue
        for number in item.operator.inputs:
            assert number is not None
            assert (bytes_of(number) == value[number]).all()
        # A kernel may use its scratch before it has read all of its inputs.
        for size, start in zip(item.scratch_bytes, plan.scratch[position], strict=True):
            arena[start : start + size] = -2
        needed = {number for number in item.operator.inputs if number is not None}
        for result in item.operator.outputs:
            bytes_of(result)[:] = result
            taken = {
                source
                for marked, source in item.call.in_place
                if marked == result and plan.tensors[source] == plan.tensors[result]
            }
            in_place += len(needed & taken)
            needed -= taken
            for number in needed:
                assert (bytes_of(number) == value[number]).all()
        for size, start in zip(item.scratch_bytes, plan.scratch[position], strict=True):
            arena[start : start + size] = -2
        for result in item.operator.outputs:
            assert (bytes_of(result) == result).all()
        position += 1
    for number in graph.outputs:
        assert (bytes_of(number) == value[number]).all()
    return in_place


@pytest.mark.slow
def test_played_through_no_value_is_lost() -> None:
    in_place = 0
    for seed in range(150):
        graph, sequence = random_case(seed)
        plan = plan_arena(graph, sequence)
        in_place += play(graph, sequence, plan)
        assert plan == plan_arena(graph, sequence)
    assert in_place > 50, "the cases never work in place, so they prove little"


def chain(*sizes: int) -> tuple[Graph, list[Step | View]]:
    operators = tuple(operator("RELU", (i,), i + 1) for i in range(len(sizes) - 1))
    graph = Graph("chain", tuple(map(tensor, sizes)), operators, (0,), (len(sizes) - 1,), "00")
    return graph, [step(o) for o in operators]


def test_chain_meets_the_lower_bound() -> None:
    graph, sequence = chain(64, 1024, 512, 2048, 16)
    assert plan_arena(graph, sequence).arena_bytes == 2048 + 512


def test_in_place_halves_an_elementwise_chain() -> None:
    graph, sequence = chain(512, 512, 512)
    assert plan_arena(graph, sequence).arena_bytes == 1024
    marked = [step(o, (o.outputs[0], o.inputs[0] or 0)) for o in graph.operators]
    plan = plan_arena(graph, marked)
    assert plan.arena_bytes == 512
    assert set(plan.tensors.values()) == {0}


def test_a_larger_result_goes_beside_its_source() -> None:
    """A kernel that writes more than it reads would write over what it has not read."""
    graph, _ = chain(64, 256)
    marked = [step(o, (o.outputs[0], o.inputs[0] or 0)) for o in graph.operators]
    plan = plan_arena(graph, marked)
    assert plan.arena_bytes == 320 and plan.tensors[0] != plan.tensors[1]


def test_result_goes_onto_one_of_two_dying_sources() -> None:
    """Both sources of a residual ADD die there, and the kernel allows either."""
    tensors = tuple(tensor(64) for _ in range(4))
    operators = (operator("RELU", (0,), 1), operator("RELU", (0,), 2), operator("ADD", (1, 2), 3))
    graph = Graph("residual", tensors, operators, (0,), (3,), "00")
    sequence = [step(operators[0]), step(operators[1]), step(operators[2], (3, 1), (3, 2))]
    plan = plan_arena(graph, sequence)
    assert plan.tensors[1] != plan.tensors[2]
    assert plan.tensors[3] in (plan.tensors[1], plan.tensors[2])


def test_a_result_goes_beside_a_source_that_is_read_twice() -> None:
    """The second input is another shape of the first, and may be read in another order."""
    operators = (operator("RESHAPE", (0,), 1), operator("ADD", (0, 1), 2))
    graph = Graph("twice", tuple(tensor(64) for _ in range(3)), operators, (0,), (2,), "00")
    plan = plan_arena(graph, [View(operators[0], 0, 1), step(operators[1], (2, 0), (2, 1))])
    assert plan.tensors[0] == plan.tensors[1] != plan.tensors[2]


def test_view_takes_no_memory_and_keeps_its_source_alive() -> None:
    tensors = (tensor(64), tensor(64), tensor(64), tensor(64))
    operators = (
        operator("RELU", (0,), 1),
        operator("RESHAPE", (1,), 2),
        operator("RELU", (2,), 3),
    )
    graph = Graph("view", tensors, operators, (0,), (3,), "00")
    assert [is_view(graph, o) for o in operators] == [False, True, False]
    plan = plan_arena(graph, [step(operators[0]), View(operators[1], 1, 2), step(operators[2])])
    assert plan.tensors[1] == plan.tensors[2] != plan.tensors[3]
    assert plan.arena_bytes == 128


def test_reshaped_constant_is_no_view() -> None:
    made = operator("RESHAPE", (0,), 1)
    graph = Graph("constant", (tensor(4, data=True), tensor(4)), (made,), (), (1,), "00")
    assert not is_view(graph, made)


def test_what_is_made_of_a_constant_lies_on_nothing() -> None:
    made = operator("RELU", (0,), 1)
    graph = Graph("constant", (tensor(4, data=True), tensor(4)), (made,), (), (1,), "00")
    assert plan_arena(graph, [step(made, (1, 0))]).tensors == {1: 0}


def test_sharing_check_finds_what_is_overwritten_too_early() -> None:
    graph, sequence = chain(64, 64, 64)
    offsets = {0: 0, 1: 64, 2: 0}
    verify_sharing(graph, sequence, offsets)
    with pytest.raises(CompileError, match="which is still needed"):
        verify_sharing(graph, sequence, {**offsets, 2: 32})
    with pytest.raises(CompileError, match="which is still needed"):
        verify_sharing(graph, sequence, {0: 0, 1: 0, 2: 64})
    first = sequence[0]
    assert isinstance(first, Step)
    marked = replace(first, call=replace(first.call, in_place=((1, 0),)))
    verify_sharing(graph, [marked, sequence[1]], {0: 0, 1: 0, 2: 64})
    with pytest.raises(CompileError, match="which is still needed"):
        verify_sharing(graph, [marked, sequence[1]], {0: 0, 1: 16, 2: 128})


def test_two_inputs_never_share() -> None:
    tensors = (tensor(8), tensor(8), tensor(8))
    made = operator("ADD", (0, 1), 2)
    graph = Graph("two", tensors, (made,), (0, 1), (2,), "00")
    plan = plan_arena(graph, [step(made)])
    assert abs(plan.tensors[0] - plan.tensors[1]) >= 8
