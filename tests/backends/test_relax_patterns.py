"""TVM's own patterns are expressions over the graph of a Relax module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_relax import check
from tvm import relax
from tvm.relax import dpl

from utvm_deploy.backends import Backend, CText, Match, Pattern
from utvm_deploy.backends.checks import check_backend
from utvm_deploy.base.errors import PluginError
from utvm_deploy.frontend.relax.road import relax_graph, relax_model
from utvm_deploy.graph.model import Graph

# TVM is a compiler, too: its passes over a function take tenths of a second.
pytestmark = pytest.mark.tools


def constant(*shape: int) -> Any:
    return relax.const(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A dense layer with bias and activation, and two without an activation behind it."""
    x = relax.Var("x", relax.TensorType((1, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = builder.emit(relax.op.matmul(x, constant(6, 5)))
            value = builder.emit(relax.op.add(value, constant(1, 5)))
            value = builder.emit(relax.op.nn.relu(value))
            left = builder.emit(relax.op.matmul(value, constant(5, 4)))
            value = builder.emit_output(relax.op.matmul(left, constant(4, 3)))
        builder.emit_func_output(value)
    made = relax_graph(relax_model(builder.get()), "net")
    assert [one.kind for one in made.operators] == ["FULLY_CONNECTED"] * 3
    return made


def build(match: Match) -> str:
    return "no"


def dense(x: Any) -> Any:
    return dpl.is_op("relax.matmul")(x, dpl.is_const())


def hidden(x: Any) -> Any:
    return dpl.is_op("relax.nn.relu")(dpl.is_op("relax.add")(dense(x), dpl.is_const()))


def places(graph: Graph, wanted: Any) -> list[tuple[int, ...]]:
    found = Pattern(wanted, build)
    check_backend(Backend("Mine", (found,), CText("")), "test")
    return [one.positions for one in found.matches(graph, range(len(graph.operators)))]


def test_a_product_its_bias_and_its_activation_are_one_operator(graph: Graph) -> None:
    x = dpl.wildcard()
    assert places(graph, hidden(x)) == [(0,)]
    assert places(graph, dense(x)) == [(1,), (2,)]
    assert places(graph, dense(hidden(x))) == [(0, 1)]
    assert places(graph, dense(dense(hidden(x)))) == [(0, 1, 2)]
    assert places(graph, dense(x) | hidden(x)) == [(0,), (1,), (2,)]
    assert places(graph, dense(x.has_dtype("float32"))) == [(1,), (2,)]
    assert places(graph, dense(x.has_dtype("float16"))) == []
    assert places(graph, (dense(x), hidden(x))) == []


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (lambda x: dpl.is_op("relax.exp")(x), "relax.exp"),
        (lambda x: dpl.is_op("relax.add")(dense(x), x), "relax.add"),
        (lambda x: dense(x.has_shape((1, 6))), "ShapePattern"),
        (lambda x: dpl.is_op("relax.nn.relu")(x), "WildcardPattern"),
        (
            lambda x: dpl.is_op("relax.add")(dpl.is_op("relax.nn.max_pool2d")(x), dpl.is_const()),
            "relax.nn.max_pool2d",
        ),
    ],
)
def test_what_is_not_in_the_graph_is_named(graph: Graph, wanted: Any, named: str) -> None:
    with pytest.raises(PluginError, match=f"^test: a pattern of TVM's has {named}, which is not"):
        places(graph, wanted(dpl.wildcard()))


def test_random_modules_compute_the_same(tmp_path: Path) -> None:
    """A few; ``random_relax.py`` does more."""
    assert check(range(16), tmp_path) > 30
