"""The verifier: each property of a well-formed graph, broken on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import build_model

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Softmax
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.macs import macs, total_macs
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.rewrite import compacted


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """CONV_2D (0 input, 1 weights, 2 bias, 3 output)."""
    return load_model(build_model("conv_same").save(tmp_path / "model.tflite"))


def _with_tensor(graph: Graph, number: int, **changes: object) -> Graph:
    tensors = list(graph.tensors)
    tensors[number] = replace(tensors[number], **changes)  # type: ignore[arg-type]
    return graph.replaced(tensors=tuple(tensors))


def _with_operator(graph: Graph, **changes: object) -> Graph:
    operator = replace(graph.operators[0], **changes)  # type: ignore[arg-type]
    return graph.replaced(operators=(operator,))


BROKEN: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda g: g.replaced(outputs=(9,)), "tensor 9 is used, but there are only 4"),
    (lambda g: g.replaced(operators=g.operators * 2), "'tensor_3', which has a value already"),
    (lambda g: g.replaced(operators=()), "'tensor_3' is not made by any operator"),
    (lambda g: _with_operator(g, inputs=(3, 1, 2)), "reads 'tensor_3' before any operator"),
    (lambda g: _with_operator(g, outputs=()), "an operator CONV_2D makes nothing"),
    (lambda g: _with_operator(g, outputs=(1,)), "'tensor_1', which has a value already"),
    (lambda g: _with_operator(g, inputs=(0, None, 2)), "wrong shapes: it lacks input 1"),
    (lambda g: _with_operator(g, inputs=(0,)), "wrong shapes: it lacks input 1"),
    (lambda g: _with_operator(g, attributes=Softmax(1.0)), "are Softmax instead of Convolution"),
    (lambda g: _with_tensor(g, 3, shape=(1, 7, 6, 5)), "computes the shape (1, 7, 6, 4)"),
    (lambda g: _with_tensor(g, 3, quantization=None), "must have one scale and one zero point"),
    (
        lambda g: _with_tensor(g, 0, dtype="float32"),
        "works on 'tensor_1', which is int8, not float32",
    ),
    (lambda g: _with_tensor(g, 1, dtype="int32"), "needs constant weights of int8"),
    (lambda g: _with_tensor(g, 2, dtype="int8"), "needs constant bias of int32"),
    (lambda g: _with_tensor(g, 1, quantization=None), "has weights 'tensor_1' without a scale"),
]


@pytest.mark.parametrize(("broken", "sentence"), BROKEN, ids=[s[:40] for _, s in BROKEN])
def test_broken(graph: Graph, broken: Callable[[Graph], Graph], sentence: str) -> None:
    with pytest.raises(ModelError) as caught:
        check_graph(broken(graph))
    assert sentence in str(caught.value)


def test_compacted_drops_what_nothing_uses(graph: Graph) -> None:
    wider = graph.replaced(tensors=(graph.tensors[1], *graph.tensors))
    moved = wider.replaced(
        operators=(replace(graph.operators[0], inputs=(1, 2, 3), outputs=(4,)),),
        inputs=(1,),
        outputs=(4,),
    )
    small = compacted(moved)
    check_graph(small)
    assert [t.name for t in small.tensors] == [t.name for t in graph.tensors]


def test_macs(tmp_path: Path) -> None:
    graph = load_model(build_model("branches").save(tmp_path / "model.tflite"))
    counts = [macs(graph, op) for op in graph.operators]
    assert counts == [4 * 4 * 8 * 9 * 4, 4 * 4 * 8 * 9, 0, 0, 0, 5 * 8, 0, 0]
    assert total_macs(graph) == sum(counts)
